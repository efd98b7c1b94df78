//! Resolves packages of catalogs within their filters.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{ExtensionCatalog, PackageSource, Reference};
use chandler_core::{
    catalog::{Usage, excluded_versions},
    failure::Failure,
    release::PackageReference,
};
use chandler_source::{Access, Packages, ResolvedPackage};

use super::NamedCatalogs;
use crate::queue::outside_of_limit;

impl NamedCatalogs {
    /// Resolves a package to a version that exists. If it is that of a catalog, only versions that its filter includes are
    /// considered.
    pub async fn resolve(
        &self,
        packages: &Packages,
        own: &str,
        catalog: Option<&Reference>,
        package: &PackageReference,
        access: &Access,
    ) -> Result<ResolvedPackage, Failure> {
        let Some(reference) = catalog else {
            return Ok(outside_of_limit(packages.resolve(package, access)).await?);
        };
        let catalog = self.get(own, reference).await?;
        let usage = Usage::new(&catalog, &package.name)?;
        usage.check_requested(package.version.as_deref())?;
        let mut package = package.clone();
        if usage.needs_versions(package.version.as_deref()) {
            let published = packages.versions(&package.repository, &package.name, access);
            let published = outside_of_limit(published).await?;
            let versions = published.iter().map(|published| published.version.as_str());
            package.version = Some(usage.choose(package.version.as_deref(), versions)?.to_owned());
        }
        let resolved = outside_of_limit(packages.resolve(&package, access)).await?;
        usage.check_version(&resolved.version)?;
        Ok(resolved)
    }

    /// Fails if a catalog does not offer the installed version of a package any more.
    pub async fn check_installed(
        &self,
        own: &str,
        catalog: Option<&Reference>,
        (chart, version): (&str, &str),
    ) -> Result<(), Failure> {
        let Some(reference) = catalog else { return Ok(()) };
        Usage::new(&*self.get(own, reference).await?, chart)?.check_version(version)
    }

    /// Returns why the filter of the catalog that a source names excludes its chart.
    pub async fn excluded_chart(
        &self,
        own: &str,
        source: &PackageSource,
    ) -> Result<Option<Failure>, Failure> {
        let Some(catalog) = self.catalog_of(own, source).await? else { return Ok(None) };
        Ok(Usage::new(&catalog, &source.chart).err())
    }

    /// Returns why the filter of the catalog that a source names excludes versions of its chart, by version.
    pub async fn excluded_versions(
        &self,
        own: &str,
        source: &PackageSource,
        versions: &[&str],
    ) -> Result<BTreeMap<String, Failure>, Failure> {
        let Some(catalog) = self.catalog_of(own, source).await? else { return Ok(BTreeMap::new()) };
        Ok(excluded_versions(&catalog, &source.chart, versions.iter().copied()))
    }

    /// Returns the catalog of a source.
    async fn catalog_of(
        &self,
        own: &str,
        source: &PackageSource,
    ) -> Result<Option<Arc<ExtensionCatalog>>, Failure> {
        match named_catalog(source) {
            Some(reference) => self.get(own, reference).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Returns the catalog that a source names. If it names a repository, too, the package comes from that one.
pub fn named_catalog(source: &PackageSource) -> Option<&Reference> {
    source.catalog.as_ref().filter(|_| source.repository.is_none())
}
