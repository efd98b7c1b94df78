//! Extensions without an Extension object: packages of catalogs.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::{
    Extension, ExtensionCatalog, ExtensionInstance, ExtensionReference, ExtensionSpec, ExtensionVersion,
    PackageSource, Reference,
};
use chandler_core::{
    catalog::{Entry, published_entries},
    extension::ExtensionKey,
    failure::{Category, Failure},
    resolution::Published,
};
use kube::ResourceExt as _;

use super::RegisteredExtension;
use crate::{release::NamedCatalogs, single_flight::SingleFlight};

/// How long results are cached if no catalog changes. The namespaces that may use a catalog can change too.
const CACHED: Duration = Duration::from_mins(5);

/// A reference from a namespace, and the number of changes to catalogs when it was resolved.
type Key = (String, ExtensionReference, u64);

/// The extensions that catalogs offer to instances.
pub struct CatalogOffers {
    catalogs: NamedCatalogs,
    known: SingleFlight<Key, Arc<RegisteredExtension>>,
}

/// Why a package of a catalog is unavailable.
enum ReadError {
    NotPolled,
    Failed(Failure),
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl CatalogOffers {
    pub fn new(catalogs: NamedCatalogs) -> Self {
        Self { catalogs, known: SingleFlight::new(CACHED) }
    }

    /// Returns the extensions that the instances of a namespace request from catalogs: namespace, name and versions.
    /// Those that do not exist are omitted, and those that cannot be read are without versions; [`CatalogOffers::registered`]
    /// returns why.
    pub async fn requested(
        &self,
        own: &str,
        instances: &[Arc<ExtensionInstance>],
    ) -> Vec<(String, String, Arc<Published>)> {
        let mut offers = Vec::new();
        let references = instances.iter().filter_map(|instance| instance.spec.extension.as_ref());
        for reference in references.filter(|reference| reference.catalog.is_some()) {
            let published = match self.registered(own, reference).await {
                Ok(Some(registered)) => Some(registered.published.clone()),
                Err(failure) if is_definite(&failure) => None,
                Ok(None) | Err(_) => Some(Arc::new(Published { is_unread: true, ..Published::default() })),
            };
            if let Some(published) = published {
                let platform = &self.catalogs.platform;
                let key = ExtensionKey::of(reference, own, platform);
                let namespace = key.namespace(own, platform).to_owned();
                offers.push((namespace, key.local_name(), published));
            }
        }
        offers
    }

    /// Returns the extension for a package of a catalog. Returns `None` if the catalog has not been polled yet, at all or by this
    /// process.
    pub async fn registered(
        &self,
        own: &str,
        reference: &ExtensionReference,
    ) -> Result<Option<Arc<RegisteredExtension>>, Failure> {
        let changes = *self.catalogs.catalogs.changes().borrow();
        let key = (own.to_owned(), reference.clone(), changes);
        match self.known.get(&key, self.read(own, reference)).await {
            Ok(registered) => Ok(Some(registered)),
            Err(ReadError::NotPolled) => Ok(None),
            Err(ReadError::Failed(failure)) => Err(failure),
        }
    }

    async fn read(
        &self,
        own: &str,
        reference: &ExtensionReference,
    ) -> Result<Arc<RegisteredExtension>, ReadError> {
        let catalog =
            Reference { name: reference.catalog.clone().unwrap_or_default(), scope: reference.scope };
        let found = self.catalogs.get(own, &catalog).await?;
        if found.status.as_ref().is_none_or(|status| status.conditions.is_empty()) {
            return Err(ReadError::NotPolled);
        }
        let entries = match self.catalogs.catalogs.entries(&found, &reference.name).await {
            // An earlier process has read it. Until this one has, or has failed to, nothing is concluded.
            Err(failure) if failure.category == Category::SourceUnavailable && is_ready(&found) => {
                return Err(ReadError::NotPolled);
            }
            entries => entries?,
        };
        let name = ExtensionKey::of(reference, own, &self.catalogs.platform).local_name();
        let mut extension = Extension::new(&name, spec(&catalog, &reference.name, &entries));
        extension.metadata.namespace = found.namespace();
        Ok(Arc::new(RegisteredExtension {
            extension: Arc::new(extension),
            published: Arc::new(published_entries(&entries)),
        }))
    }
}

fn is_ready(catalog: &ExtensionCatalog) -> bool {
    let mut conditions = catalog.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns whether a failure shows that a package does not exist.
fn is_definite(failure: &Failure) -> bool {
    matches!(failure.category, Category::PackageNotFound | Category::InvalidSpec)
}

/// Returns the spec of an equivalent Extension.
fn spec(catalog: &Reference, chart: &str, entries: &[Entry]) -> ExtensionSpec {
    let version = |entry: &Entry| ExtensionVersion {
        version: entry.version.clone(),
        source: PackageSource {
            catalog: Some(catalog.clone()),
            chart: chart.to_owned(),
            version: Some(entry.version.clone()),
            ..PackageSource::default()
        },
        ..ExtensionVersion::default()
    };
    ExtensionSpec { versions: entries.iter().map(version).collect(), ..ExtensionSpec::default() }
}
