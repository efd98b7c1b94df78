//! Catalogs that release objects and Extensions refer to: where their packages are and how to access them.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{ExtensionCatalog, PackageSource, Reference, Scope};
use chandler_core::{
    catalog::{Entry, Namespace, OfferedFolder, Usage, may_use, offered_folder},
    extension::namespace_of,
    failure::{Category, Failure},
    release::Desired,
    tenancy::{SourceUse, package_url},
    version,
};
use chandler_source::{Access, ResolvedPackage, Signers};
use kube::{Client, ResourceExt as _};

use crate::{
    catalog::{Catalogs, catalog_access, catalog_signers},
    namespace_labels::NamespaceLabels,
    tenancies::Tenancies,
};

/// The catalogs that release objects and Extensions may name. Clones share them.
#[derive(Clone)]
pub struct NamedCatalogs {
    pub client: Client,
    pub catalogs: Catalogs,
    /// The namespace whose catalogs are available to all namespaces.
    pub platform: String,
    labels: NamespaceLabels,
    tenancies: Tenancies,
}

/// A package of a catalog that is a folder of a Source.
#[derive(Clone)]
pub struct CatalogFolder {
    pub offered: OfferedFolder,
    /// The last revision of the Source at which the catalog was read. The package may be from an earlier one.
    pub revision: Option<String>,
}

impl NamedCatalogs {
    pub fn new(client: Client, catalogs: Catalogs, platform: String) -> Self {
        let labels = NamespaceLabels::new(client.clone());
        let tenancies = Tenancies::new(client.clone(), None);
        Self { client, catalogs, platform, labels, tenancies }
    }

    /// Lets AddonTenancies restrict which sources namespaces may use.
    #[must_use]
    pub fn under(self, tenancies: Tenancies) -> Self {
        Self { tenancies, ..self }
    }

    /// Checks whether AddonTenancies allow a namespace to read from a source.
    pub async fn check_allowed(&self, own: &str, source: &PackageSource) -> Result<(), Failure> {
        let rules = self.tenancies.of(own).await?;
        if rules.allow_everything() {
            return Ok(());
        }
        if let Some(repository) = &source.repository {
            return rules.check_source(SourceUse::Url(&package_url(repository, &source.chart)));
        }
        if let Some(reference) = source.source_ref.as_ref().filter(|one| one.scope == Scope::Platform) {
            return rules.check_source(SourceUse::PlatformSource { name: &reference.name, catalog: None });
        }
        match &source.catalog {
            Some(catalog) if catalog.scope == Scope::Platform => {
                rules.check_source(SourceUse::PlatformCatalog(&catalog.name))
            }
            Some(catalog) => match self.catalogs.get(own, &catalog.name) {
                Some(found) if found.spec.source.is_none() => {
                    let url = package_url(&found.spec.url, &source.chart);
                    rules.check_source(SourceUse::Url(&url))
                }
                // A Source of the namespace is fetched only from an allowed URL.
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Checks whether AddonTenancies allow a namespace to download a package. The index of an allowed repository may name an
    /// address elsewhere; that of a catalog of the platform is the platform's.
    pub async fn check_archive(
        &self,
        own: &str,
        catalog: Option<&Reference>,
        package: &ResolvedPackage,
    ) -> Result<(), Failure> {
        let is_platform = catalog.is_some_and(|catalog| catalog.scope == Scope::Platform);
        match package.archive_url().filter(|_| !is_platform) {
            Some(url) => self.tenancies.check_source(own, SourceUse::Url(url)).await,
            None => Ok(()),
        }
    }

    /// Fills in the repository of the catalog that `desired` refers to, if the filter of the catalog includes the package.
    pub async fn located(&self, mut desired: Desired) -> Result<Desired, Failure> {
        if let Some(reference) = &desired.access.catalog {
            let catalog = self.get(&desired.cluster.namespace, reference).await?;
            Usage::new(&catalog, &desired.package.name)?
                .check_requested(desired.package.version.as_deref())?;
            desired.package.repository = url(&catalog)?;
        }
        Ok(desired)
    }

    /// Returns the namespace that owns the source of packages: that of the catalog, or else `own`.
    pub fn owner<'a>(&'a self, own: &'a str, catalog: Option<&Reference>) -> &'a str {
        catalog.map_or(own, |reference| namespace_of(reference.scope, own, &self.platform))
    }

    /// Returns the access to a catalog's packages.
    pub async fn access(&self, own: &str, reference: &Reference) -> Result<Access, Failure> {
        let catalog = self.get(own, reference).await?;
        catalog_access(&self.client, &catalog.namespace().unwrap_or_default(), &catalog.spec).await
    }

    /// Returns the signers that a catalog requires.
    pub async fn signers(&self, own: &str, reference: &Reference) -> Result<Option<Arc<Signers>>, Failure> {
        let catalog = self.get(own, reference).await?;
        catalog_signers(&self.client, &catalog.namespace().unwrap_or_default(), &catalog.spec).await
    }

    /// Returns the repository and the access of a source that an object of namespace `own` refers to, if the filter of its catalog
    /// includes the package.
    pub async fn repository(&self, own: &str, source: &PackageSource) -> Result<(String, Access), Failure> {
        match (&source.repository, &source.catalog) {
            (Some(repository), _) => {
                let access = Access { namespace: own.to_owned(), ..Access::default() };
                Ok((repository.clone(), access))
            }
            (None, Some(catalog)) => {
                let found = self.get(own, catalog).await?;
                Usage::new(&found, &source.chart)?.check_requested(source.version.as_deref())?;
                let url = url(&found)?;
                Ok((url, self.access(own, catalog).await?))
            }
            (None, None) => {
                Err(Failure::new(Category::InvalidSpec, "a source names neither repository nor catalog"))
            }
        }
    }

    /// Returns the folder of a Source with the chart that an object of namespace `own` refers to. `None` if it does not refer to a
    /// catalog that is a folder of a Source.
    pub async fn folder(&self, own: &str, source: &PackageSource) -> Result<Option<CatalogFolder>, Failure> {
        let Some((catalog, entries)) = self.folder_entries(own, source).await? else {
            // A missing catalog is a failure, so that a release whose package came from its folder keeps it.
            if let Some(reference) = source.catalog.as_ref().filter(|reference| !self.exists(own, reference))
            {
                self.get(own, reference).await?;
            }
            return Ok(None);
        };
        let versions = entries.iter().map(|entry| entry.version.as_str());
        let chosen = version::choose(source.version.as_deref(), versions);
        let entry = entries.iter().find(|entry| Some(entry.version.as_str()) == chosen);
        let scope = source.catalog.as_ref().map(|reference| reference.scope).unwrap_or_default();
        let offered = entry.and_then(|entry| offered_folder(&catalog.spec, entry, scope));
        let offered = offered.ok_or_else(|| {
            let message = format!(
                "ExtensionCatalog {}/{} has no version {} of chart {}; `chandler catalog show` lists its versions",
                catalog.namespace().unwrap_or_default(),
                catalog.name_any(),
                source.version.as_deref().unwrap_or("that is not a pre-release"),
                source.chart
            );
            Failure::new(Category::PackageNotFound, message)
        })?;
        Ok(Some(CatalogFolder { offered, revision: self.catalogs.checked_revision(&catalog) }))
    }

    /// Returns the catalog that an object of namespace `own` refers to, and the versions of the chart in it. `None` if it does not
    /// refer to a catalog that is a folder of a Source.
    pub async fn folder_entries(
        &self,
        own: &str,
        source: &PackageSource,
    ) -> Result<Option<(Arc<ExtensionCatalog>, Vec<Entry>)>, Failure> {
        let Some(reference) = &source.catalog else { return Ok(None) };
        let namespace = namespace_of(reference.scope, own, &self.platform);
        let found = self.catalogs.get(namespace, &reference.name);
        if found.is_none_or(|catalog| catalog.spec.source.is_none()) {
            return Ok(None);
        }
        let catalog = self.get(own, reference).await?;
        let entries = self.catalogs.entries(&catalog, &source.chart).await?;
        Ok(Some((catalog, entries)))
    }

    fn exists(&self, own: &str, reference: &Reference) -> bool {
        let namespace = namespace_of(reference.scope, own, &self.platform);
        self.catalogs.get(namespace, &reference.name).is_some()
    }

    /// Returns the catalog that an object of namespace `own` refers to, if that namespace may use it.
    pub async fn get(&self, own: &str, reference: &Reference) -> Result<Arc<ExtensionCatalog>, Failure> {
        let namespace = namespace_of(reference.scope, own, &self.platform);
        let catalog = self.catalogs.get(namespace, &reference.name).ok_or_else(|| {
            let why = format!(
                "ExtensionCatalog {namespace}/{} does not exist; releases installed from it are left unchanged",
                reference.name
            );
            Failure::new(Category::InvalidSpec, why)
        })?;
        let labels = self.labels(&catalog, own).await?;
        may_use(&catalog, Some(&self.platform), Namespace { name: own, labels: &labels })?;
        Ok(catalog)
    }

    /// Returns the labels of a namespace, if the catalog selects by them.
    async fn labels(
        &self,
        catalog: &ExtensionCatalog,
        own: &str,
    ) -> Result<Arc<BTreeMap<String, String>>, Failure> {
        if catalog.spec.namespaces.is_none() || catalog.namespace().as_deref() == Some(own) {
            return Ok(Arc::default());
        }
        self.labels.get(own).await
    }
}

/// Returns the URL of a catalog.
fn url(catalog: &ExtensionCatalog) -> Result<String, Failure> {
    if catalog.spec.source.is_none() {
        return Ok(catalog.spec.url.clone());
    }
    let message = format!(
        "ExtensionCatalog {}/{} is a folder of a Source now; the release is updated to it as soon as its instance is \
         reconciled",
        catalog.namespace().unwrap_or_default(),
        catalog.name_any()
    );
    Err(Failure::new(Category::SourceUnavailable, message))
}
