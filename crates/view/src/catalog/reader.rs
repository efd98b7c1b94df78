//! Reads catalogs from their sources as the manager does, with a cache of the user's own.

use std::{path::PathBuf, sync::Arc};

use chandler_api::extensions::{CatalogSource, ExtensionCatalog, Source};
use chandler_controller::{catalog_access, fetch_source, read_folder};
use chandler_core::{
    catalog::{Selection, location, unverifiable},
    digest::Digest,
    extension::namespace_of,
    failure::{Category, Failure},
    identity::ToolId,
    package_format::PackageFormat,
    release::PackageReference,
    source::Origin,
};
use chandler_source::{Access, Catalog, CatalogRequest, FilesOwner, Packages, StoredPackage};
use chandler_tool::{PackageFile, PackageTool, Supervisor, SupervisorConfig};
use kube::{Api, Client, ResourceExt as _};

use super::{Error, PackageView, namespaced_name};

/// Reads catalogs and their charts from repositories, registries and Sources.
pub struct CatalogReader {
    client: Client,
    packages: Arc<Packages>,
    /// The namespace whose Sources are available to all namespaces.
    platform: String,
}

/// A catalog from its source, or from the cache if the source is unavailable.
pub struct FetchedCatalog {
    pub catalog: Catalog,
    /// Why the source could not be read. `None` means the catalog is current.
    pub source_error: Option<String>,
}

impl CatalogReader {
    pub fn new(client: Client, packages: Packages, platform: String) -> Self {
        Self { client, packages: Arc::new(packages), platform }
    }

    /// Reads a catalog. Falls back to the cache if its source is unavailable.
    pub async fn read(&self, catalog: &ExtensionCatalog) -> Result<FetchedCatalog, Error> {
        if let Some(why) = unverifiable(&catalog.spec) {
            return Err(Error::Unverifiable { why });
        }
        let selection = Selection::new(catalog.spec.filter.as_ref())?;
        let namespace = catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.client, &namespace, &catalog.spec).await?;
        let key = key(catalog);
        let url = location(&catalog.spec);
        let request = CatalogRequest { key: &key, url: &url, access: &access, selection: &selection };
        let read = match &catalog.spec.source {
            Some(folder) => self.read_source(&namespace, folder, request).await.map_err(Error::from),
            None => self.packages.read_catalog(request).await.map_err(Error::from),
        };
        match (read, self.packages.stored_catalog(request)) {
            (Ok(catalog), _) => Ok(FetchedCatalog { catalog, source_error: None }),
            (Err(error), Some(catalog)) => {
                Ok(FetchedCatalog { catalog, source_error: Some(error.to_string()) })
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the folder of a Source of a catalog in `namespace`.
    async fn read_source(
        &self,
        namespace: &str,
        folder: &CatalogSource,
        request: CatalogRequest<'_>,
    ) -> Result<Catalog, Failure> {
        let source = self.source(namespace, folder).await?;
        let tree = Arc::new(fetch_source(&self.client, &self.packages, &source).await?);
        let (home, url) = (source.namespace().unwrap_or_default(), Origin::of(&source.spec)?.url());
        let owner = FilesOwner { namespace: &home, url: &url };
        read_folder(&self.packages, request, owner, &tree, folder.path.as_deref()).await
    }

    async fn source(&self, namespace: &str, folder: &CatalogSource) -> Result<Source, Failure> {
        let home = namespace_of(folder.source_ref.scope, namespace, &self.platform);
        let name = &folder.source_ref.name;
        let found = Api::<Source>::namespaced(self.client.clone(), home).get(name).await;
        found.map_err(|error| {
            let message = format!("Source {home}/{name} cannot be read: {error}");
            Failure::new(Category::SourceUnavailable, message)
        })
    }

    /// Downloads a version of a chart and returns its metadata, default values, schema and README.
    pub async fn inspect(
        &self,
        catalog: &ExtensionCatalog,
        chart: &str,
        version: &str,
        tool: PathBuf,
    ) -> Result<PackageView, Error> {
        let stored = match &catalog.spec.source {
            Some(folder) => self.folder_package(catalog, folder, chart, version).await?,
            None => self.package(catalog, chart, version).await?,
        };
        let supervisor = Supervisor::new(SupervisorConfig::new(tool));
        let tool = PackageTool::new(ToolId(0), supervisor.clone());
        let file = PackageFile {
            path: stored.path().to_owned(),
            digest: stored.digest.clone(),
            format: stored.format().clone(),
        };
        let info = tool.inspect(&file).await;
        supervisor.kill();
        Ok(PackageView::new(info?))
    }

    /// Downloads a version of a chart of a repository or registry.
    async fn package(
        &self,
        catalog: &ExtensionCatalog,
        chart: &str,
        version: &str,
    ) -> Result<StoredPackage, Error> {
        let namespace = catalog.namespace().unwrap_or_default();
        let access = catalog_access(&self.client, &namespace, &catalog.spec).await?;
        let reference = PackageReference {
            repository: catalog.spec.url.clone(),
            name: chart.to_owned(),
            version: Some(version.to_owned()),
        };
        let resolved = self.packages.resolve(&reference, &access).await?;
        Ok(self.packages.fetch(&resolved, &access).await?)
    }

    /// Returns the package that was made of a folder when the catalog was read.
    async fn folder_package(
        &self,
        catalog: &ExtensionCatalog,
        folder: &CatalogSource,
        chart: &str,
        version: &str,
    ) -> Result<StoredPackage, Error> {
        let namespace = catalog.namespace().unwrap_or_default();
        let source = self.source(&namespace, folder).await?;
        let url = Origin::of(&source.spec)?.url();
        let missing = || {
            let message = format!("{} has no package {chart} {version}", namespaced_name(catalog));
            Failure::new(Category::PackageNotFound, message)
        };
        let digest = self.digest(catalog, chart, version).ok_or_else(missing)?;
        let home = source.namespace().unwrap_or_default();
        let owner = FilesOwner { namespace: &home, url: &url };
        let stored = self.packages.stored_files(owner, None, &digest, &PackageFormat::default())?;
        Ok(stored.ok_or_else(missing)?)
    }

    /// Returns the digest of a package of the stored catalog.
    fn digest(&self, catalog: &ExtensionCatalog, chart: &str, version: &str) -> Option<Digest> {
        let selection = Selection::new(catalog.spec.filter.as_ref()).ok()?;
        let (key, url, access) = (key(catalog), location(&catalog.spec), Access::default());
        let request = CatalogRequest { key: &key, url: &url, access: &access, selection: &selection };
        let chart = self.packages.stored_catalog(request)?.chart(chart).ok()??;
        let entry = chart.versions.into_iter().find(|entry| entry.version == version)?;
        Digest::parse(&entry.folder?.digest)
    }
}

/// Returns the key of a catalog in the store.
fn key(catalog: &ExtensionCatalog) -> String {
    catalog.uid().unwrap_or_else(|| namespaced_name(catalog))
}
