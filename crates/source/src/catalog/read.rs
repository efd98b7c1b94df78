//! Reads catalogs from their sources, and from the store.

use std::{collections::BTreeMap, io, sync::Arc};

use chandler_core::catalog::Selection;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::{About, Catalog, CatalogRequest, FORMAT, write::Writer};
use crate::{Packages, SourceError, https::Downloaded, web::shown};

impl Packages {
    /// The catalog as its source has it now. What has not changed since it was kept is not sent again.
    pub async fn read_catalog(&self, request: CatalogRequest<'_>) -> Result<Catalog, SourceError> {
        let kept = self.kept_catalog(request);
        if request.url.starts_with("oci://") {
            return self.read_registry(request, kept).await;
        }
        let known = kept.as_ref().map(|kept| headers(&kept.about.validators)).unwrap_or_default();
        let offered = self.repositories.offered(request.url, request.access, known).await?;
        match (offered, kept) {
            (None, Some(kept)) => Ok(kept),
            (Some(offered), Some(kept)) if is_same(&kept, &offered) => Ok(kept),
            (Some(offered), _) => {
                let about = about(request, offered.digest.as_str(), texts(&offered.validators));
                self.keep(request, about, move |writer| write_index(&offered, writer)).await
            }
            // Without validators nobody says that nothing has changed.
            (None, None) => Err(SourceError::Store("the kept catalog has gone".to_owned())),
        }
    }

    /// The catalog as it was read last from this address with this selection.
    pub fn kept_catalog(&self, request: CatalogRequest<'_>) -> Option<Catalog> {
        let catalog = Catalog::open(self.store.open_catalog(request.key)?)
            .inspect_err(|error| tracing::warn!(%error, "a kept catalog cannot be used"))
            .ok()?;
        let CatalogRequest { url, selection, .. } = request;
        let same =
            catalog.about.source == source(url) && catalog.about.selection == selection.digest().as_str();
        same.then_some(catalog)
    }

    /// Removes a catalog from the store.
    pub fn forget_catalog(&self, key: &str) {
        self.store.forget_catalog(key);
    }

    /// Writes the file aside, then puts it in its place.
    pub(super) async fn keep(
        &self,
        request: CatalogRequest<'_>,
        about: About,
        fill: impl FnOnce(&mut Writer<'_>) -> io::Result<()> + Send + 'static,
    ) -> Result<Catalog, SourceError> {
        let (store, selection, key) = (self.store.clone(), request.selection.clone(), request.key.to_owned());
        let keep = move || {
            let mut writer = Writer::new(store.begin_catalog()?, &selection);
            fill(&mut writer).map_err(failed)?;
            let kept = store.keep_catalog(&key, writer.finish(about).map_err(failed)?)?;
            Catalog::open(kept).map_err(failed)
        };
        tokio::task::spawn_blocking(keep).await.map_err(failed)?
    }
}

fn write_index(offered: &Arc<Downloaded>, writer: &mut Writer<'_>) -> io::Result<()> {
    let names = offered.index.charts();
    names.into_iter().try_for_each(|name| writer.add(name, offered.index.published(name)))
}

fn is_same(kept: &Catalog, offered: &Downloaded) -> bool {
    kept.about.digest == offered.digest.as_str() && kept.about.validators == texts(&offered.validators)
}

pub(super) fn about(
    request: CatalogRequest<'_>,
    digest: &str,
    validators: BTreeMap<String, String>,
) -> About {
    let selection: &Selection = request.selection;
    About {
        format: FORMAT,
        source: source(request.url),
        selection: selection.digest().to_string(),
        digest: digest.to_owned(),
        validators,
        packages: 0,
    }
}

/// The address without a login that it may carry: the file is not secret.
fn source(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), |url| shown(&url))
}

fn texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    headers.iter().filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect()
}

fn headers(texts: &BTreeMap<String, String>) -> HeaderMap {
    let header = |(name, value): (&String, &String)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    };
    texts.iter().filter_map(header).collect()
}

pub(super) fn failed(error: impl std::fmt::Display) -> SourceError {
    SourceError::Store(error.to_string())
}
