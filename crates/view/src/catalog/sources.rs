//! Reads the sources of catalogs, as the manager does, into a store of the user's own.

use std::path::PathBuf;

use chandler_api::extensions::ExtensionCatalog;
use chandler_controller::catalog_access;
use chandler_core::{
    catalog::{Selection, unverifiable},
    release::PackageReference,
};
use chandler_source::{Catalog, CatalogRequest, Packages, SourceError};
use chandler_tool::{PackageFile, PackageTool, Supervisor, SupervisorConfig};
use kube::{Client, ResourceExt as _};

use super::{Error, Inspected, named};

/// The sources of catalogs.
pub struct Sources {
    client: Client,
    packages: Packages,
}

/// A catalog as it is now, or as it was when it was last read.
pub struct ReadCatalog {
    pub catalog: Catalog,
    /// Why it is not the catalog as it is now.
    pub outdated: Option<SourceError>,
}

impl Sources {
    pub fn new(client: Client, packages: Packages) -> Self {
        Self { client, packages }
    }

    /// Reads a catalog.
    pub async fn read(&self, catalog: &ExtensionCatalog) -> Result<ReadCatalog, Error> {
        if let Some(why) = unverifiable(&catalog.spec) {
            return Err(Error::Unverifiable { why });
        }
        let selection = Selection::new(catalog.spec.filter.as_ref())?;
        let namespace = catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.client, &namespace, &catalog.spec).await?;
        let key = catalog.uid().unwrap_or_else(|| named(catalog));
        let request =
            CatalogRequest { key: &key, url: &catalog.spec.url, access: &access, selection: &selection };
        match self.packages.read_catalog(request).await {
            Ok(catalog) => Ok(ReadCatalog { catalog, outdated: None }),
            Err(error) => {
                let catalog = self.packages.stored_catalog(request).ok_or_else(|| error.clone())?;
                Ok(ReadCatalog { catalog, outdated: Some(error) })
            }
        }
    }

    /// What a version of a chart tells about itself.
    pub async fn inspect(
        &self,
        catalog: &ExtensionCatalog,
        chart: &str,
        version: &str,
        tool: PathBuf,
    ) -> Result<Inspected, Error> {
        let namespace = catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.client, &namespace, &catalog.spec).await?;
        let reference = PackageReference {
            repository: catalog.spec.url.clone(),
            name: chart.to_owned(),
            version: Some(version.to_owned()),
        };
        let resolved = self.packages.resolve(&reference, &access).await?;
        let stored = self.packages.fetch(&resolved, &access).await?;
        let tool = PackageTool::new(Supervisor::new(SupervisorConfig::new(tool)));
        let file = PackageFile { path: stored.path().to_owned(), digest: stored.digest.clone() };
        let told = tool.inspect(&file).await;
        tool.supervisor().kill().await;
        Ok(Inspected::new(told?))
    }
}
