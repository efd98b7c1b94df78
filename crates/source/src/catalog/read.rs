//! Reads catalogs from their sources and from the store.

use std::{collections::BTreeMap, io, sync::Arc};

use chandler_core::{catalog::Selection, digest::Digest};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::{Catalog, CatalogMetadata, CatalogRequest, Chart, FORMAT, write::Writer};
use crate::{Packages, SourceError, http::redacted, repositories::RepositoryIndex};

impl Packages {
    /// Reads the current catalog from its source, and stores it. If it has not changed, it is not downloaded again.
    pub async fn read_catalog(&self, request: CatalogRequest<'_>) -> Result<Catalog, SourceError> {
        let stored = self.stored_catalog(request);
        let _slot = self.slots.slot().await?;
        if request.url.starts_with("oci://") {
            return self.read_registry(request, stored).await;
        }
        let validators =
            stored.as_ref().map(|stored| to_headers(&stored.metadata.validators)).unwrap_or_default();
        let current = self.repositories.current_index(request.url, request.access, validators).await?;
        match (current, stored) {
            (None, Some(stored)) => Ok(stored),
            (Some(current), Some(stored)) if is_unchanged(&stored, &current) => Ok(stored),
            (Some(current), _) => {
                let metadata = metadata(request, current.digest.as_str(), to_map(&current.validators));
                self.write_catalog(request, metadata, move |writer| write_index(&current, writer)).await
            }
            // Not reached: without validators, the source does not respond "not modified".
            (None, None) => Err(SourceError::Store("the stored catalog is missing".to_owned())),
        }
    }

    /// Returns the catalog that was last read from this URL with this selection, if it is in the store.
    pub fn stored_catalog(&self, request: CatalogRequest<'_>) -> Option<Catalog> {
        let catalog = Catalog::open(self.store.open_catalog(request.key)?)
            .inspect_err(|error| tracing::warn!(%error, "a stored catalog is invalid"))
            .ok()?;
        let CatalogRequest { url, selection, .. } = request;
        let matches = catalog.metadata.source == source(url)
            && catalog.metadata.selection == selection.digest().as_str();
        matches.then_some(catalog)
    }

    /// Stores the charts of a folder of a Source, which are sorted by name. `digest` is that of the files in the folder.
    pub async fn store_catalog(
        &self,
        request: CatalogRequest<'_>,
        digest: &Digest,
        charts: Vec<Chart>,
    ) -> Result<Catalog, SourceError> {
        let metadata = metadata(request, digest.as_str(), BTreeMap::new());
        let fill = move |writer: &mut Writer<'_>| charts.iter().try_for_each(|chart| writer.write(chart));
        self.write_catalog(request, metadata, fill).await
    }

    /// Removes a catalog from the store.
    pub fn remove_catalog(&self, key: &str) {
        self.store.remove_catalog(key);
    }

    /// Writes the catalog to a temporary file, and renames it into place.
    pub(super) async fn write_catalog(
        &self,
        request: CatalogRequest<'_>,
        metadata: CatalogMetadata,
        fill: impl FnOnce(&mut Writer<'_>) -> io::Result<()> + Send + 'static,
    ) -> Result<Catalog, SourceError> {
        let (store, selection, key) = (self.store.clone(), request.selection.clone(), request.key.to_owned());
        let write = move || {
            let mut writer = Writer::new(store.create_catalog()?, &selection);
            fill(&mut writer).map_err(failed)?;
            let stored = store.persist_catalog(&key, writer.finish(metadata).map_err(failed)?)?;
            Catalog::open(stored).map_err(failed)
        };
        tokio::task::spawn_blocking(write).await.map_err(failed)?
    }
}

fn write_index(current: &Arc<RepositoryIndex>, writer: &mut Writer<'_>) -> io::Result<()> {
    let names = current.index.charts();
    names.into_iter().try_for_each(|name| writer.add(name, current.index.chart_versions(name)))
}

fn is_unchanged(stored: &Catalog, current: &RepositoryIndex) -> bool {
    stored.metadata.digest == current.digest.as_str()
        && stored.metadata.validators == to_map(&current.validators)
}

pub(super) fn metadata(
    request: CatalogRequest<'_>,
    digest: &str,
    validators: BTreeMap<String, String>,
) -> CatalogMetadata {
    let selection: &Selection = request.selection;
    CatalogMetadata {
        format: FORMAT,
        source: source(request.url),
        selection: selection.digest().to_string(),
        digest: digest.to_owned(),
        validators,
        packages: 0,
    }
}

/// Returns the URL without credentials, because the file is not secret.
fn source(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), |url| redacted(&url))
}

fn to_map(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    headers.iter().filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect()
}

fn to_headers(map: &BTreeMap<String, String>) -> HeaderMap {
    let header = |(name, value): (&String, &String)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    };
    map.iter().filter_map(header).collect()
}

pub(super) fn failed(error: impl std::fmt::Display) -> SourceError {
    SourceError::Store(error.to_string())
}
