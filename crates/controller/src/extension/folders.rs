//! The packages of releases that are made of folders of Sources.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chandler_api::extensions::{
    AddonRelease, ExtensionInstance, PackageSource, PinnedPackage, SourceProgress,
};
use chandler_core::{
    failure::{Category, Failure},
    identity::{ClusterKey, ClusterMap},
    parameters::Parameters,
    placement::{ReleaseContent, SourceChecks, pin},
    source::{Content, evaluated_path},
};
use kube::{ResourceExt as _, api::DynamicObject};

use super::releases::Draft;
use crate::{
    ReconcileError,
    locks::Mutex,
    placement::ComposeError,
    release::CatalogFolder,
    sources::{Folder, SourcePackages},
    tasks::take_turns,
    templates::{ClusterTemplate, Templates},
};

/// Finds the folder of each cluster, and pins the package that is made of it.
pub struct FolderPackages {
    packages: SourcePackages,
    templates: Templates,
    /// What was made for each instance, by uid.
    checks: Mutex<HashMap<String, SourceChecks>>,
}

/// The package of a folder, which clusters share.
#[derive(Clone)]
struct Made {
    /// The revision of the Source. `None` for a tag, or if it is unavailable.
    revision: Option<String>,
    /// `None` means a kustomization, which is built with the values.
    package: Result<Option<PinnedPackage>, Failure>,
}

impl From<&CatalogFolder> for Made {
    /// The package is the one that the catalog has read, although the Source may have got another revision since.
    fn from(folder: &CatalogFolder) -> Self {
        let CatalogFolder { offered, revision } = folder;
        Self { revision: revision.clone(), package: Ok(Some(offered.package.clone())) }
    }
}

impl FolderPackages {
    pub fn new(packages: SourcePackages, templates: Templates) -> Self {
        Self { packages, templates, checks: Mutex::default() }
    }

    /// Returns which of the selected clusters of an instance have which revisions of Sources.
    pub fn progress(
        &self,
        instance: &ExtensionInstance,
        selected: &ClusterMap<Arc<DynamicObject>>,
        releases: &ClusterMap<Arc<AddonRelease>>,
    ) -> Vec<SourceProgress> {
        let mut all = self.checks.lock();
        match all.get_mut(&instance.uid().unwrap_or_default()) {
            Some(checks) => {
                checks.retain(|cluster| selected.contains_key(cluster));
                checks.progress(selected.keys(), releases)
            }
            None => SourceChecks::default().progress(selected.keys(), releases),
        }
    }

    /// Removes what is known about a deleted instance.
    pub fn forget(&self, instance: &ExtensionInstance) {
        self.checks.lock().remove(&instance.uid().unwrap_or_default());
    }

    /// Records that the package of a cluster does not come from a Source.
    fn clear(&self, instance: &ExtensionInstance, cluster: &ClusterKey) {
        if let Some(checks) = self.checks.lock().get_mut(&instance.uid().unwrap_or_default()) {
            checks.clear(cluster);
        }
    }

    fn with_checks(&self, instance: &ExtensionInstance, change: impl FnOnce(&mut SourceChecks)) {
        change(self.checks.lock().entry(instance.uid().unwrap_or_default()).or_default());
    }

    /// Sets the folders and packages of drafts whose package is in a Source. Removes drafts that fail, and returns why.
    pub(super) async fn pin(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<AddonRelease>>,
        package_of: Option<&AddonRelease>,
        drafts: &mut ClusterMap<Draft>,
    ) -> Result<ClusterMap<ComposeError>, ReconcileError> {
        let mut failed = self.set_paths(instance, clusters, drafts).await?;
        // The clusters of one folder share the result, also if it is a failure.
        let mut all: HashMap<PackageSource, Made> = HashMap::new();
        for (done, (key, draft)) in drafts.iter_mut().enumerate() {
            take_turns(done).await;
            let source = &draft.content.source;
            let Some(reference) = &source.source_ref else {
                self.clear(instance, key);
                continue;
            };
            if failed.contains_key(key) {
                continue;
            }
            if let Some(pinned) = pinned_by(package_of, source) {
                draft.layers.pinned = Some(pinned.clone());
                draft.content.pinned = Some(pinned);
                continue;
            }
            let folder = Folder { source, namespace: &key.namespace };
            let made = match (&draft.offered, all.get(source)) {
                (Some(offered), _) => Made::from(offered),
                (None, Some(made)) => made.clone(),
                (None, None) => {
                    let made = self.make(folder).await;
                    all.insert(source.clone(), made.clone());
                    made
                }
            };
            self.with_checks(instance, |checks| {
                checks.start(key, reference, made.revision.as_deref());
                if let Ok(Some(package)) = &made.package {
                    checks.finish(key, &package.digest);
                }
            });
            match made.package {
                Ok(package) => {
                    let there = existing.get(key).map(AsRef::as_ref);
                    let package = package.map(|package| pin(there, source, package));
                    draft.layers.pinned.clone_from(&package);
                    draft.content.pinned = package;
                }
                Err(failure) => {
                    failed.insert(key.clone(), failure.into());
                }
            }
        }
        drafts.retain(|key, _| !failed.contains_key(key));
        Ok(failed)
    }

    /// Makes the package of a folder.
    async fn make(&self, folder: Folder<'_>) -> Made {
        let revision = self.packages.revision(folder).await;
        let package = self.package(folder).await;
        let made = package.as_ref().ok().and_then(Option::as_ref).map(|package| package.revision.clone());
        // The Source may have got another revision meanwhile.
        let revision = revision.map(|revision| made.unwrap_or(revision));
        Made { revision, package }
    }

    /// Returns the package of a folder. `None` means a kustomization, which is built with the values.
    async fn package(&self, folder: Folder<'_>) -> Result<Option<PinnedPackage>, Failure> {
        match self.packages.content(folder).await? {
            Content::Kustomization => Ok(None),
            Content::Chart | Content::Manifests => self.packages.make(folder, None).await.map(Some),
        }
    }

    /// Evaluates the paths of folders, which may be templates, for each cluster. Returns why that failed for some.
    async fn set_paths(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        drafts: &mut ClusterMap<Draft>,
    ) -> Result<ClusterMap<ComposeError>, ReconcileError> {
        let templates = drafts.iter().filter_map(|(key, draft)| {
            let (template, cluster) = (path_template(draft)?, clusters.get(key)?.clone());
            Some((
                key.clone(),
                ClusterTemplate { template, cluster, other: Parameters::new(), content: None },
            ))
        });
        let placement = format!("{} path", instance.uid().unwrap_or_default());
        let mut failed = BTreeMap::new();
        for (key, path) in self.templates.evaluate_each(&placement, templates.collect()).await? {
            let Some(draft) = drafts.get_mut(&key) else { continue };
            let template = path_template(draft).unwrap_or_default();
            let path = path.and_then(|path| Ok(evaluated_path(&template, &path)?));
            match path {
                Ok(path) => {
                    draft.content.source.path = Some(path.clone());
                    draft.layers.source.path = Some(path);
                }
                Err(error) => {
                    failed.insert(key, error);
                }
            }
        }
        Ok(failed)
    }

    /// Builds the package of a kustomization, with the values of its release.
    pub(super) async fn build(
        &self,
        instance: &ExtensionInstance,
        cluster: &ClusterKey,
        content: ReleaseContent,
        existing: Option<&AddonRelease>,
    ) -> Result<ReleaseContent, ComposeError> {
        let Some(reference) = content.source.source_ref.as_ref().filter(|_| content.pinned.is_none()) else {
            return Ok(content);
        };
        if content.values_secret.is_some() {
            let message = "a kustomization cannot have parameters of a Secret, because they would be part of its package; \
                           use a chart or plain manifests";
            return Err(Failure::new(Category::InvalidSpec, message).into());
        }
        let folder = Folder { source: &content.source, namespace: &cluster.namespace };
        let made = self.packages.make(folder, content.values.as_deref()).await?;
        let revision = Some(made.revision.as_str()).filter(|_| content.source.version.is_none());
        self.with_checks(instance, |checks| {
            checks.start(cluster, reference, revision);
            checks.finish(cluster, &made.digest);
        });
        let pinned = Some(pin(existing, &content.source, made));
        Ok(ReleaseContent { pinned, ..content })
    }
}

/// Returns the package that another release object has pinned for the same folder. A package that is made of the values is not
/// that of others.
fn pinned_by(release: Option<&AddonRelease>, source: &PackageSource) -> Option<PinnedPackage> {
    let release = release.filter(|release| release.spec.source == *source)?;
    release.spec.pinned.clone().filter(|pinned| !pinned.includes_values)
}

/// Returns the path of a draft's folder, if it is a template.
fn path_template(draft: &Draft) -> Option<String> {
    draft.content.source.path.clone().filter(|path| path.contains("{{"))
}
