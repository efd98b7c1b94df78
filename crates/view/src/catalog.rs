//! The catalogs of a management cluster and the charts in them.

mod reader;
mod views;

use chandler_api::extensions::{Extension, ExtensionCatalog};
use chandler_core::failure::Failure;
use chandler_source::SourceError;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

pub use self::{
    reader::{CatalogReader, FetchedCatalog},
    views::{CatalogView, ChartView, DependencyView, ExtensionView, PackageView, SearchResultView},
};

/// A catalog or a chart cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "listing ExtensionCatalogs; are Chandler's CRDs installed (`chandler crds`), and may you list them?"
    )]
    List { source: Box<kube::Error> },
    #[error("listing Extensions; are Chandler's CRDs installed (`chandler crds`), and may you list them?")]
    ListExtensions { source: Box<kube::Error> },
    #[error("there is no ExtensionCatalog {name}; list them with `chandler catalog list`")]
    CatalogNotFound { name: String },
    #[error("several namespaces have an ExtensionCatalog {name}: {}; choose one with --namespace", namespaces.join(", "))]
    AmbiguousCatalog { name: String, namespaces: Vec<String> },
    #[error(
        "{why}, so the catalog offers nothing; remove spec.verify to use its packages without verification"
    )]
    Unverifiable { why: &'static str },
    #[error("{chart} has no version {version}; the newest is {newest}")]
    VersionNotFound { chart: String, version: String, newest: String },
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Lists the catalogs of a namespace, sorted by namespace and name. `None` means all namespaces.
pub async fn list_catalogs(client: &Client, namespace: Option<&str>) -> Result<Vec<ExtensionCatalog>, Error> {
    let api: Api<ExtensionCatalog> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let list = api.list(&ListParams::default()).await;
    let mut catalogs = list.map_err(|error| Error::List { source: Box::new(error) })?.items;
    catalogs.sort_by_key(namespaced_name);
    Ok(catalogs)
}

/// Lists the Extensions of a namespace that match all search terms, sorted by namespace and name. `None` means all namespaces.
pub async fn list_extensions(
    client: &Client,
    namespace: Option<&str>,
    terms: &[String],
) -> Result<Vec<ExtensionView>, Error> {
    let api: Api<Extension> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let list = api.list(&ListParams::default()).await;
    let list = list.map_err(|error| Error::ListExtensions { source: Box::new(error) })?;
    let mut views: Vec<_> = list.items.iter().map(ExtensionView::new).collect();
    views.retain(|view| view.matches(terms));
    views.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    Ok(views)
}

/// Returns the catalog with this name. Fails if several namespaces have one.
pub fn find_catalog(catalogs: Vec<ExtensionCatalog>, name: &str) -> Result<ExtensionCatalog, Error> {
    let mut matching: Vec<_> = catalogs.into_iter().filter(|catalog| catalog.name_any() == name).collect();
    let name = name.to_owned();
    if matching.len() > 1 {
        let namespaces = matching.iter().filter_map(kube::ResourceExt::namespace).collect();
        return Err(Error::AmbiguousCatalog { name, namespaces });
    }
    matching.pop().ok_or(Error::CatalogNotFound { name })
}

/// Returns namespace and name, joined by `/`.
pub fn namespaced_name(catalog: &ExtensionCatalog) -> String {
    format!("{}/{}", catalog.namespace().unwrap_or_default(), catalog.name_any())
}
