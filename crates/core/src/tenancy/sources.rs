//! Which sources packages and files may come from.

use super::{Rules, matches_any, refused, url_prefix};
use crate::{failure::Failure, url_login::WithoutLogin};

/// A source that an object of a namespace uses.
#[derive(Clone, Copy, Debug)]
pub enum SourceUse<'a> {
    /// A repository, registry or bucket, of the object itself or of a catalog or Source in the same namespace.
    Url(&'a str),
    /// An ExtensionCatalog in the platform namespace.
    PlatformCatalog(&'a str),
    /// A Source in the platform namespace, or a folder of it that a catalog of the platform offers.
    PlatformSource { name: &'a str, catalog: Option<&'a str> },
}

/// Returns the address of a package. In a registry, its name is part of it.
pub fn package_url(repository: &str, name: &str) -> String {
    let repository = repository.trim_end_matches('/');
    if repository.to_ascii_lowercase().starts_with("oci://") {
        return format!("{repository}/{name}");
    }
    repository.to_owned()
}

impl Rules {
    /// Checks whether a source may be used. The error names the AddonTenancy and its field.
    pub fn check_source(&self, source: SourceUse<'_>) -> Result<(), Failure> {
        for tenancy in &self.0 {
            let Some(allowed) = &tenancy.spec.sources else { continue };
            let (is_allowed, what, field) = match source {
                SourceUse::Url(url) => (
                    url_prefix::allows(&allowed.url_prefixes, url),
                    format!("source {}", WithoutLogin(url)),
                    "spec.sources.urlPrefixes",
                ),
                SourceUse::PlatformCatalog(name) => (
                    matches_any(&allowed.platform_catalogs, name),
                    format!("ExtensionCatalog {name} of the platform"),
                    "spec.sources.platformCatalogs",
                ),
                SourceUse::PlatformSource { name, catalog: None } => (
                    matches_any(&allowed.platform_sources, name),
                    format!("Source {name} of the platform"),
                    "spec.sources.platformSources",
                ),
                SourceUse::PlatformSource { name, catalog: Some(catalog) } => (
                    matches_any(&allowed.platform_sources, name)
                        || matches_any(&allowed.platform_catalogs, catalog),
                    format!("ExtensionCatalog {catalog} of the platform"),
                    "spec.sources.platformCatalogs",
                ),
            };
            if !is_allowed {
                return Err(refused(&tenancy.name, &what, field, "does not list it"));
            }
        }
        Ok(())
    }
}
