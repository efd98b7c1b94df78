//! Packages that are made of folders of Sources: a chart or a bundle of manifests. What is in the folder decides.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::{PackageSource, PinnedPackage};
use chandler_core::{
    digest::Digest,
    failure::{Category, Failure},
    package_format::PackageFormat,
    parameters::{from_package_yaml, from_yaml},
    release::SourceFolder,
    source::{Content, content_of},
};
use chandler_source::{FilesOwner, Packages, PackedFiles, SourceError, SourceTree, StoredPackage};
use chandler_tool::{BuildInput, BuiltObject, TemplateService};
use serde_json::Value;

use super::{CurrentSource, Sources};
use crate::{
    queue::{RESYNC, outside_of_limit},
    single_flight::SingleFlight,
    tasks::with_files,
};

/// How long results are kept: longer than between two reconciles of a placement.
const CACHED: Duration = RESYNC.saturating_mul(3);

/// A folder at one revision of a Source: uid and content key of the Source, the revision, and the path.
type FolderKey = (String, String, String, String);
/// A folder, and the digest of the values that a package includes.
type PackageKey = (FolderKey, Option<Digest>);

/// Makes packages of folders of Sources. Clones share the results.
#[derive(Clone)]
pub struct SourcePackages {
    sources: Sources,
    packages: Arc<Packages>,
    service: TemplateService,
    contents: Arc<SingleFlight<FolderKey, Content>>,
    made: Arc<SingleFlight<PackageKey, PinnedPackage>>,
}

/// A folder that an object of a namespace refers to.
#[derive(Clone, Copy)]
pub struct Folder<'a> {
    pub source: &'a PackageSource,
    /// The namespace of the object.
    pub namespace: &'a str,
}

impl Folder<'_> {
    fn path(&self) -> &str {
        self.source.path.as_deref().unwrap_or_default()
    }
}

impl SourcePackages {
    pub fn new(sources: Sources, packages: Arc<Packages>, service: TemplateService) -> Self {
        let (contents, made) = (Arc::new(SingleFlight::new(CACHED)), Arc::new(SingleFlight::new(CACHED)));
        Self { sources, packages, service, contents, made }
    }

    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns the revision of the Source of a folder. `None` if the folder is read at a tag, or if no revision is available.
    pub async fn revision(&self, folder: Folder<'_>) -> Option<String> {
        if folder.source.version.is_some() {
            return None;
        }
        Some(self.current(folder).await.ok()?.revision.commit.id)
    }

    /// Returns what a folder contains.
    pub async fn content(&self, folder: Folder<'_>) -> Result<Content, Failure> {
        let current = self.current(folder).await?;
        let read = async {
            let tree = self.files(&current).await?;
            content_of(tree.below(folder.path())?.files.keys().map(String::as_str))
                .map_err(|failure| about(&current, folder.path(), &failure))
        };
        self.contents.get(&key(&current, folder.path()), read).await
    }

    /// Makes the package of a folder. The values are part of the package of a kustomization, and of no other.
    pub async fn make(&self, folder: Folder<'_>, values: Option<&str>) -> Result<PinnedPackage, Failure> {
        let content = self.content(folder).await?;
        let current = self.current(folder).await?;
        self.packages.check_files(&current.url, current.revision.verified_with.as_deref())?;
        let values = values.filter(|_| content == Content::Kustomization);
        let key = (key(&current, folder.path()), values.map(Digest::of));
        let made = self.made.get(&key, self.made_now(&current, folder.path(), content, values));
        made.await.map_err(|failure| about(&current, folder.path(), &failure))
    }

    /// Returns the package that a release object has pinned. It is made again if it is no longer stored.
    pub async fn stored(&self, folder: &SourceFolder, namespace: &str) -> Result<StoredPackage, Failure> {
        let SourceFolder { source, tag, path, pinned, values } = folder;
        let source = PackageSource {
            source_ref: Some(source.clone()),
            version: tag.clone(),
            path: Some(path.clone()),
            ..PackageSource::default()
        };
        let folder = Folder { source: &source, namespace };
        let current = self.current(folder).await?;
        let format = PackageFormat::stored(pinned.format.as_deref());
        let digest = Digest::parse(&pinned.digest)
            .ok_or_else(|| Failure::new(Category::Internal, "spec.pinned.digest is not a digest"))?;
        let find = || {
            let signers = current.revision.verified_with.as_deref();
            self.packages.stored_files(current.owner(), signers, &digest, &format)
        };
        if let Some(stored) = find()? {
            return Ok(stored);
        }
        let content = self.content(folder).await?;
        let values = values.as_deref().filter(|_| pinned.includes_values);
        let made = self.made_now(&current, path, content, values).await;
        let made = made.map_err(|failure| about(&current, path, &failure))?;
        find()?.filter(|_| made.digest == pinned.digest).ok_or_else(|| {
            let message = format!(
                "the package of revision {} is no longer stored, and revision {} has another one; the release is \
                 updated to it as soon as its instance is reconciled",
                pinned.revision, made.revision
            );
            about(&current, path, &Failure::new(Category::SourceUnavailable, message))
        })
    }

    /// Returns the `kubeVersion` of the chart in a folder. `None` if it has none, if there is no chart, or if the folder depends
    /// on the Cluster.
    pub async fn kubernetes_range(&self, folder: Folder<'_>) -> Result<Option<String>, Failure> {
        if folder.path().contains("{{") || self.content(folder).await? != Content::Chart {
            return Ok(None);
        }
        let current = self.current(folder).await?;
        let tree = self.files(&current).await?.below(folder.path())?;
        let metadata = tree.files.get("Chart.yaml").map(|text| String::from_utf8_lossy(text).into_owned());
        let metadata = from_package_yaml("Chart.yaml", &metadata.unwrap_or_default())
            .map_err(|failure| about(&current, folder.path(), &failure))?;
        Ok(metadata.get("kubeVersion").and_then(Value::as_str).map(str::to_owned))
    }

    async fn current(&self, folder: Folder<'_>) -> Result<CurrentSource, Failure> {
        let reference = folder.source.source_ref.clone().unwrap_or_default();
        match &folder.source.version {
            Some(tag) => self.sources.tagged(&reference, folder.namespace, tag).await,
            None => self.sources.current(&reference, folder.namespace).await,
        }
    }

    /// Returns the files of exactly this revision.
    async fn files(&self, current: &CurrentSource) -> Result<Arc<SourceTree>, Failure> {
        let tree = self.sources.files(current).await?;
        if tree.revision == current.revision.commit.id {
            return Ok(tree);
        }
        let message =
            format!("{} has got another revision while it was read; this is retried", current.named);
        Err(Failure::new(Category::Timeout, message))
    }

    /// Makes and stores a package.
    async fn made_now(
        &self,
        current: &CurrentSource,
        path: &str,
        content: Content,
        values: Option<&str>,
    ) -> Result<PinnedPackage, Failure> {
        let tree = self.files(current).await?;
        let origin = format!("{}, folder {path}", current.named);
        let (files, folder) = (tree.clone(), path.to_owned());
        let (digest, format) = match content {
            Content::Chart => {
                let pack = move || PackedFiles::chart(files.below(&folder)?.entries());
                self.store(current, origin, pack).await?
            }
            Content::Manifests => {
                let pack = move || PackedFiles::manifests(files.below(&folder)?.entries());
                self.store(current, origin, pack).await?
            }
            Content::Kustomization => {
                let built = self.build(&tree, path, values).await?;
                self.store(current, origin, move || pack_objects(&built)).await?
            }
        };
        Ok(PinnedPackage {
            revision: tree.revision.clone(),
            digest,
            format,
            includes_values: content == Content::Kustomization,
        })
    }

    /// Builds a kustomization, which may refer to files outside of its folder.
    async fn build(
        &self,
        tree: &SourceTree,
        path: &str,
        values: Option<&str>,
    ) -> Result<Vec<BuiltObject>, Failure> {
        let values = match values {
            Some(text) => Value::Object(from_yaml("the values", text)?).to_string().into_bytes(),
            None => Vec::new(),
        };
        let files = tree.files.iter().map(|(path, content)| (path.clone(), content.to_vec())).collect();
        self.service.build(BuildInput { files, path: path.to_owned(), values }).await
    }

    /// Packs files and stores the package in the same thread, so that the number of threads limits the memory for packages.
    /// Returns digest and format.
    async fn store(
        &self,
        current: &CurrentSource,
        origin: String,
        pack: impl FnOnce() -> Result<PackedFiles, SourceError> + Send + 'static,
    ) -> Result<(String, Option<String>), Failure> {
        let (packages, url) = (self.packages.clone(), current.url.clone());
        let namespace = current.revision.namespace.clone();
        let store = with_files(move || {
            let owner = FilesOwner { namespace: &namespace, url: &url };
            let stored = packages.store_files(pack()?, owner, &origin)?;
            Ok((stored.digest.to_string(), stored.format().to_stored()))
        });
        outside_of_limit(store).await
    }
}

/// Packs the objects of a kustomization.
fn pack_objects(built: &[BuiltObject]) -> Result<PackedFiles, SourceError> {
    let objects: Vec<_> = built.iter().enumerate().map(file).collect();
    PackedFiles::manifests(objects.iter().map(|(name, yaml)| (name.as_str(), yaml.as_bytes())))
}

/// Returns the file of an object in a bundle. The names keep the order of kustomize.
fn file((number, object): (usize, &BuiltObject)) -> (String, String) {
    (format!("{number:05}.yaml"), object.yaml.clone())
}

fn key(current: &CurrentSource, path: &str) -> FolderKey {
    let revision = &current.revision;
    (current.uid.clone(), revision.content_key.clone(), revision.commit.id.clone(), path.to_owned())
}

/// Returns a failure that names the folder and the revision.
pub fn about(current: &CurrentSource, path: &str, failure: &Failure) -> Failure {
    let CurrentSource { named, revision, .. } = current;
    let message = format!("{named}, revision {}, folder {path:?}: {}", revision.commit.id, failure.message);
    Failure::new(failure.category, message)
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::Reference;
    use chandler_source::{PolicyUnavailable, SignaturePolicy};
    use chandler_tool::{Supervisor, SupervisorConfig};
    use kube::runtime::{reflector::store::Writer, watcher::Event};
    use tokio::sync::watch;

    use super::*;
    use crate::sources::testing::{offline, packages, source, stored};

    const MAP: &str = "kind: ConfigMap";
    const CHART: &str = "apiVersion: v2\nname: web\nversion: 0.1.0\nkubeVersion: '>=1.30.0-0'\n";

    struct World {
        folder: tempfile::TempDir,
        packages: Arc<Packages>,
        made: SourcePackages,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let packages = packages(folder.path());
            let mut objects = Writer::new(());
            objects.apply_watcher_event(&Event::Apply(source("main")));
            let (stores, changes) = (vec![objects.as_reader()], watch::Sender::default());
            let sources = Sources::new(offline(), stores, packages.clone(), "platform", changes);
            let service = TemplateService::new(Supervisor::new(SupervisorConfig::templates("absent")));
            let made = SourcePackages::new(sources, packages.clone(), service);
            Self { folder, packages, made }
        }

        async fn push(&self, id: &str, files: &[(&str, &'static str)]) {
            let (revision, tree) = stored(&source("main"), id, files);
            self.packages.store_tree("uid", revision, tree).await.unwrap();
        }

        async fn make(&self, path: &str) -> Result<PinnedPackage, Failure> {
            let source = package_source(path);
            self.made.make(Folder { source: &source, namespace: "team" }, None).await
        }
    }

    fn package_source(path: &str) -> PackageSource {
        PackageSource {
            source_ref: Some(reference()),
            path: Some(path.to_owned()),
            ..PackageSource::default()
        }
    }

    fn reference() -> Reference {
        Reference { name: "fleet".to_owned(), ..Reference::default() }
    }

    fn pinned(path: &str, pinned: PinnedPackage) -> SourceFolder {
        SourceFolder { source: reference(), tag: None, path: path.to_owned(), pinned, values: None }
    }

    #[tokio::test]
    async fn only_changes_in_a_folder_change_its_package() {
        let world = World::new();
        world.push("c1", &[("web/Chart.yaml", CHART), ("maps/a.yaml", MAP)]).await;
        let (chart, maps) = (world.make("web").await.unwrap(), world.make("maps").await.unwrap());
        assert_eq!((chart.format.clone(), &*chart.revision), (None, "c1"));
        assert_eq!(maps.format.as_deref(), Some(PackageFormat::MANIFESTS));
        world
            .push("c2", &[("web/Chart.yaml", CHART), ("maps/a.yaml", MAP), ("maps/README.md", "text")])
            .await;
        for (path, first) in [("web", chart), ("maps", maps.clone())] {
            let again = world.make(path).await.unwrap();
            assert_eq!(again, PinnedPackage { revision: "c2".to_owned(), ..first }, "{path}");
        }
        world.push("c3", &[("maps/a.yaml", "kind: Secret")]).await;
        assert_ne!(world.make("maps").await.unwrap().digest, maps.digest);
        let missing = world.make("web").await.unwrap_err();
        assert_eq!(missing.category, Category::PackageNotFound);
        assert!(missing.message.contains("revision c3 has no folder \"web\""), "{missing}");
    }

    #[tokio::test]
    async fn a_package_that_is_no_longer_stored_is_made_again() {
        let world = World::new();
        world.push("c1", &[("maps/a.yaml", MAP)]).await;
        let made = pinned("maps", world.make("maps").await.unwrap());
        std::fs::remove_dir_all(world.folder.path().join("sha256")).unwrap();
        std::fs::create_dir(world.folder.path().join("sha256")).unwrap();
        let stored = world.made.stored(&made, "team").await.unwrap();
        assert_eq!(stored.digest.to_string(), made.pinned.digest);
        drop(stored);
        std::fs::remove_dir_all(world.folder.path().join("sha256")).unwrap();
        std::fs::create_dir(world.folder.path().join("sha256")).unwrap();
        world.push("c2", &[("maps/a.yaml", "kind: Secret")]).await;
        let moved = world.made.stored(&made, "team").await.unwrap_err();
        assert_eq!(moved.category, Category::SourceUnavailable);
        assert!(moved.message.contains("revision c1 is no longer stored"), "{moved}");
    }

    #[tokio::test]
    async fn a_source_whose_packages_must_be_signed_has_none() {
        let world = World::new();
        world.push("c1", &[("maps/a.yaml", MAP)]).await;
        let made = pinned("maps", world.make("maps").await.unwrap());
        let location = "ConfigMap signatures".to_owned();
        world.packages.set_signature_policy(Err(PolicyUnavailable { location, reason: "absent".to_owned() }));
        for refused in [world.make("maps").await.map(drop), world.made.stored(&made, "team").await.map(drop)]
        {
            assert_eq!(refused.unwrap_err().category, Category::VerificationFailed);
        }
        world.packages.set_signature_policy(Ok(SignaturePolicy::default()));
        world.make("maps").await.unwrap();
    }

    #[tokio::test]
    async fn the_range_of_a_chart_is_read_unless_the_folder_depends_on_the_cluster() {
        let world = World::new();
        world.push("c1", &[("web/Chart.yaml", CHART), ("maps/a.yaml", MAP)]).await;
        let rows = [("web", Some(">=1.30.0-0")), ("maps", None), ("{{ .Cluster.metadata.name }}", None)];
        for (path, expected) in rows {
            let source = package_source(path);
            let found = world.made.kubernetes_range(Folder { source: &source, namespace: "team" }).await;
            assert_eq!(found.unwrap().as_deref(), expected, "{path}");
        }
    }
}
