//! Reads the sources of catalogs, as the manager does, into a store of the user's own.

use std::path::PathBuf;

use anyhow::{Result, bail};
use chandler_api::extensions::ExtensionCatalog;
use chandler_controller::catalog_access;
use chandler_core::{
    catalog::{Selection, unverifiable},
    release::PackageReference,
};
use chandler_source::{Catalog, CatalogRequest, Packages};
use chandler_tool::{PackageFile, PackageTool, Supervisor, SupervisorConfig};
use kube::{Client, ResourceExt as _};

use super::{named, views::Inspected};
use crate::packages::SourceArgs;

pub struct Sources {
    client: Client,
    packages: Packages,
}

impl Sources {
    pub fn open(client: Client, source: SourceArgs) -> Result<Self> {
        Ok(Self { client, packages: source.open()? })
    }

    /// A catalog as it is now, or as it was when it was last read.
    pub async fn read(&self, catalog: &ExtensionCatalog) -> Result<Catalog> {
        if let Some(why) = unverifiable(&catalog.spec) {
            bail!("{why}, so nothing of it is offered; remove spec.verify to take packages unchecked");
        }
        let selection = Selection::new(catalog.spec.filter.as_ref())?;
        let namespace = catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.client, &namespace, &catalog.spec).await?;
        let key = catalog.uid().unwrap_or_else(|| named(catalog));
        let request =
            CatalogRequest { key: &key, url: &catalog.spec.url, access: &access, selection: &selection };
        match self.packages.read_catalog(request).await {
            Ok(read) => Ok(read),
            Err(error) => {
                let kept = self.packages.kept_catalog(request).ok_or_else(|| error.clone())?;
                eprintln!("warning: {}: {error}; shown is what was read before", named(catalog));
                Ok(kept)
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
    ) -> Result<Inspected> {
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
