//! Resolves packages of catalogs within their filters.

use chandler_api::extensions::Reference;
use chandler_core::{catalog::Usage, failure::Failure, release::PackageReference};
use chandler_source::{Access, Packages, PublishedVersion, ResolvedPackage};

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

    /// Returns those versions of a chart that the filter of a catalog includes.
    pub async fn included(
        &self,
        own: &str,
        catalog: Option<&Reference>,
        chart: &str,
        mut versions: Vec<PublishedVersion>,
    ) -> Result<Vec<PublishedVersion>, Failure> {
        if let Some(reference) = catalog {
            let catalog = self.get(own, reference).await?;
            let usage = Usage::new(&catalog, chart)?;
            versions.retain(|published| usage.check_version(&published.version).is_ok());
        }
        Ok(versions)
    }
}
