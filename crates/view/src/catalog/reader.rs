//! Reads catalogs from their sources as the manager does, with a cache of the user's own.

use std::path::PathBuf;

use chandler_api::extensions::ExtensionCatalog;
use chandler_controller::catalog_access;
use chandler_core::{
    catalog::{Selection, unverifiable},
    identity::ToolId,
    release::PackageReference,
};
use chandler_source::{Catalog, CatalogRequest, Packages, SourceError};
use chandler_tool::{PackageFile, PackageTool, Supervisor, SupervisorConfig};
use kube::{Client, ResourceExt as _};

use super::{Error, PackageView, namespaced_name};

/// Reads catalogs and their charts from repositories and registries.
pub struct CatalogReader {
    client: Client,
    packages: Packages,
}

/// A catalog from its source, or from the cache if the source is unavailable.
pub struct FetchedCatalog {
    pub catalog: Catalog,
    /// Why the source could not be read. `None` means the catalog is current.
    pub source_error: Option<SourceError>,
}

impl CatalogReader {
    pub fn new(client: Client, packages: Packages) -> Self {
        Self { client, packages }
    }

    /// Reads a catalog. Falls back to the cache if its source is unavailable.
    pub async fn read(&self, catalog: &ExtensionCatalog) -> Result<FetchedCatalog, Error> {
        if let Some(why) = unverifiable(&catalog.spec) {
            return Err(Error::Unverifiable { why });
        }
        let selection = Selection::new(catalog.spec.filter.as_ref())?;
        let namespace = catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.client, &namespace, &catalog.spec).await?;
        let key = catalog.uid().unwrap_or_else(|| namespaced_name(catalog));
        let request =
            CatalogRequest { key: &key, url: &catalog.spec.url, access: &access, selection: &selection };
        match self.packages.read_catalog(request).await {
            Ok(catalog) => Ok(FetchedCatalog { catalog, source_error: None }),
            Err(error) => {
                let catalog = self.packages.stored_catalog(request).ok_or_else(|| error.clone())?;
                Ok(FetchedCatalog { catalog, source_error: Some(error) })
            }
        }
    }

    /// Downloads a version of a chart and returns its metadata, default values, schema and README.
    pub async fn inspect(
        &self,
        catalog: &ExtensionCatalog,
        chart: &str,
        version: &str,
        tool: PathBuf,
    ) -> Result<PackageView, Error> {
        let namespace = catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.client, &namespace, &catalog.spec).await?;
        let reference = PackageReference {
            repository: catalog.spec.url.clone(),
            name: chart.to_owned(),
            version: Some(version.to_owned()),
        };
        let resolved = self.packages.resolve(&reference, &access).await?;
        let stored = self.packages.fetch(&resolved, &access).await?;
        let tool = PackageTool::new(ToolId(0), Supervisor::new(SupervisorConfig::new(tool)));
        let file = PackageFile {
            path: stored.path().to_owned(),
            digest: stored.digest.clone(),
            format: stored.format().clone(),
        };
        let info = tool.inspect(&file).await;
        tool.supervisor().kill().await;
        Ok(PackageView::new(info?))
    }
}
