//! What the catalogs of a management cluster offer.

mod sources;
mod views;

use chandler_api::extensions::ExtensionCatalog;
use chandler_core::failure::Failure;
use chandler_source::SourceError;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

pub use self::{
    sources::{ReadCatalog, Sources},
    views::{CatalogView, ChartView, DependencyView, FoundView, Inspected},
};

/// Why a catalog or a chart cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "listing ExtensionCatalogs; are Chandler's kinds installed (`chandler crds`), and may you list them?"
    )]
    List { source: Box<kube::Error> },
    #[error("there is no catalog {name}; `chandler catalog list` shows them")]
    NoSuchCatalog { name: String },
    #[error("there is a catalog {name} in each of {}; choose with --namespace", namespaces.join(", "))]
    SeveralCatalogs { name: String, namespaces: Vec<String> },
    #[error("{why}, so nothing of it is offered; remove spec.verify to take packages unchecked")]
    Unverifiable { why: &'static str },
    #[error("{chart} has no version {version}; its newest is {newest}")]
    NoSuchVersion { chart: String, version: String, newest: String },
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Returns the catalogs of a namespace, or of all, by name.
pub async fn catalogs(client: &Client, namespace: Option<&str>) -> Result<Vec<ExtensionCatalog>, Error> {
    let api: Api<ExtensionCatalog> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let listed = api.list(&ListParams::default()).await;
    let mut catalogs = listed.map_err(|error| Error::List { source: Box::new(error) })?.items;
    catalogs.sort_by_key(named);
    Ok(catalogs)
}

/// Returns the only catalog with this name.
pub fn one_catalog(catalogs: Vec<ExtensionCatalog>, name: &str) -> Result<ExtensionCatalog, Error> {
    let mut fitting: Vec<_> = catalogs.into_iter().filter(|catalog| catalog.name_any() == name).collect();
    let name = name.to_owned();
    if fitting.len() > 1 {
        let namespaces = fitting.iter().filter_map(kube::ResourceExt::namespace).collect();
        return Err(Error::SeveralCatalogs { name, namespaces });
    }
    fitting.pop().ok_or(Error::NoSuchCatalog { name })
}

/// Returns namespace and name, joined by `/`.
pub fn named(catalog: &ExtensionCatalog) -> String {
    format!("{}/{}", catalog.namespace().unwrap_or_default(), catalog.name_any())
}
