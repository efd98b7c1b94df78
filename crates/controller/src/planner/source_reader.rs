//! Reads the Sources and catalogs that plans need, as their controllers would: none of these runs.

use std::{collections::HashMap, sync::Arc};

use chandler_api::extensions::{
    CatalogSource, ExtensionCatalog, ExtensionInstance, ExtensionSpec, PackageSource, Reference, Source,
    SourceRef,
};
use chandler_core::{
    catalog::{Selection, location, unverifiable},
    extension::namespace_of,
    failure::{Category, Failure},
    source::Origin,
};
use chandler_source::{CatalogRequest, FilesOwner, Packages};
use kube::{Client, ResourceExt};
use tokio::sync::Mutex;

use crate::{
    catalog::{catalog_access, read_folder},
    sources::fetch_source,
};

/// Namespace and name.
type Name = (String, String);
/// What was read, by the object. A failure is kept, too, so that each object is read once.
type Read<T> = Mutex<HashMap<Name, Result<T, Failure>>>;

/// Reads Sources and catalogs into the store of packages, each once. Clones share what was read.
#[derive(Clone)]
pub struct SourceReader(Arc<Inner>);

struct Inner {
    client: Client,
    packages: Arc<Packages>,
    /// The namespace whose Sources and catalogs are available to all namespaces.
    platform: String,
    sources: HashMap<Name, Source>,
    catalogs: HashMap<Name, ExtensionCatalog>,
    read_sources: Read<()>,
    read_catalogs: Read<()>,
}

impl SourceReader {
    pub fn new(
        client: Client,
        packages: Arc<Packages>,
        platform: &str,
        sources: Vec<Source>,
        catalogs: Vec<ExtensionCatalog>,
    ) -> Self {
        Self(Arc::new(Inner {
            client,
            packages,
            platform: platform.to_owned(),
            sources: by_name(sources),
            catalogs: by_name(catalogs),
            read_sources: Mutex::default(),
            read_catalogs: Mutex::default(),
        }))
    }

    /// Reads what an instance refers to itself.
    pub async fn read_for_instance(&self, instance: &ExtensionInstance) -> Result<(), Failure> {
        let (spec, own) = (&instance.spec, instance.namespace().unwrap_or_default());
        if let Some(source) = &spec.source {
            self.read_package(&own, source).await?;
        }
        let extension = spec.extension.as_ref();
        if let Some((extension, catalog)) = extension.and_then(|one| Some((one, one.catalog.clone()?))) {
            self.read_catalog(&own, &Reference { name: catalog, scope: extension.scope }).await?;
        }
        Ok(())
    }

    /// Reads what the versions of an Extension of namespace `own` refer to. A failure of one version does not hide the others: it is
    /// reported when the version is used.
    pub async fn read_for_extension(&self, own: &str, spec: &ExtensionSpec) {
        for version in &spec.versions {
            let _ = self.read_package(own, &version.source).await;
        }
        let Some(follow) = &spec.follow_kubernetes else { return };
        if let Some(source) = &follow.source_ref {
            let _ = self.source(own, source).await;
        }
        if let Some(catalog) = &follow.catalog {
            let _ = self.read_catalog(own, catalog).await;
        }
    }

    async fn read_package(&self, own: &str, source: &PackageSource) -> Result<(), Failure> {
        if let Some(reference) = &source.source_ref {
            self.source(own, reference).await?;
        }
        if let Some(reference) = &source.catalog {
            self.read_catalog(own, reference).await?;
        }
        Ok(())
    }

    /// Fetches the files of a Source. One that does not exist is reported when it is used.
    async fn source(&self, own: &str, reference: &SourceRef) -> Result<Option<&Source>, Failure> {
        let Inner { client, packages, platform, sources, read_sources, .. } = &*self.0;
        let name = (namespace_of(reference.scope, own, platform).to_owned(), reference.name.clone());
        let Some(source) = sources.get(&name) else { return Ok(None) };
        // The lock is held while a Source is fetched, so that others wait for it.
        let mut read = read_sources.lock().await;
        if let Some(known) = read.get(&name) {
            return known.clone().map(|()| Some(source));
        }
        let fetched = fetch_source(client, packages, source).await;
        let fetched = fetched.and_then(|tree| check_suspended(source, &tree.revision));
        read.insert(name, fetched.clone());
        fetched.map(|()| Some(source))
    }

    async fn read_catalog(&self, own: &str, reference: &Reference) -> Result<(), Failure> {
        let Inner { platform, catalogs, read_catalogs, .. } = &*self.0;
        let name = (namespace_of(reference.scope, own, platform).to_owned(), reference.name.clone());
        let Some(catalog) = catalogs.get(&name) else { return Ok(()) };
        let mut read = read_catalogs.lock().await;
        if let Some(known) = read.get(&name) {
            return known.clone();
        }
        let result = self.catalog(catalog).await.map_err(|failure| {
            let message = format!("ExtensionCatalog {}/{}: {}", name.0, name.1, failure.message);
            Failure { message, ..failure }
        });
        read.insert(name, result.clone());
        result
    }

    async fn catalog(&self, catalog: &ExtensionCatalog) -> Result<(), Failure> {
        let Inner { client, packages, .. } = &*self.0;
        if let Some(why) = unverifiable(&catalog.spec) {
            return Err(Failure::new(Category::InvalidSpec, why));
        }
        let selection = Selection::new(catalog.spec.filter.as_ref())?;
        let (namespace, uid) = (catalog.namespace().unwrap_or_default(), catalog.uid().unwrap_or_default());
        let access = catalog_access(client, &namespace, &catalog.spec).await?;
        let url = location(&catalog.spec);
        let request = CatalogRequest { key: &uid, url: &url, access: &access, selection: &selection };
        match &catalog.spec.source {
            Some(CatalogSource { source_ref, path, .. }) => {
                let source = self.source(&namespace, source_ref).await?;
                let url = source.map(|source| Origin::of(&source.spec)).transpose()?.map(Origin::url);
                let stored = match source.and_then(ResourceExt::uid) {
                    Some(uid) => packages.stored_tree(&uid).await?,
                    None => None,
                };
                let (revision, tree) = stored.ok_or_else(|| {
                    let message = format!("its Source {} does not exist", source_ref.name);
                    Failure::new(Category::SourceUnavailable, message)
                })?;
                let url = url.unwrap_or_default();
                let owner = FilesOwner { namespace: &revision.namespace, url: &url };
                read_folder(packages, request, owner, &Arc::new(tree), path.as_deref()).await?;
            }
            None => {
                packages.read_catalog(request).await?;
            }
        }
        Ok(())
    }
}

fn by_name<K: kube::Resource>(objects: Vec<K>) -> HashMap<Name, K> {
    let name = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

/// Checks that a suspended Source has been fetched at the revision that the manager uses.
fn check_suspended(source: &Source, fetched: &str) -> Result<(), Failure> {
    let used = source.status.as_ref().and_then(|status| status.revision.as_deref());
    match used {
        Some(used) if source.spec.suspend && used != fetched => {
            let message = format!(
                "Source {}/{} is suspended at revision {used}, but its repository is at {fetched} now, so that what it offers cannot be \
                 planned; resume it, or pin the revision in its ref",
                source.namespace().unwrap_or_default(),
                source.name_any()
            );
            Err(Failure::new(Category::SourceUnavailable, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::testing::source;

    #[test]
    fn a_suspended_source_is_used_at_the_revision_of_its_status_only() {
        let rows = [
            (false, None, true),
            (false, Some("c1"), true),
            (true, None, true),
            (true, Some("c2"), true),
            (true, Some("c1"), false),
        ];
        for (suspend, used, expected) in rows {
            let mut source = source("main");
            source.spec.suspend = suspend;
            source.status.get_or_insert_default().revision = used.map(str::to_owned);
            let checked = check_suspended(&source, "c2");
            assert_eq!(checked.is_ok(), expected, "{suspend} {used:?}");
        }
    }
}
