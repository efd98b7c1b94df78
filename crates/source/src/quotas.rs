//! What namespaces use of shared resources, and for which source.

use crate::{Access, ResolvedPackage, access_digest::AccessDigest, packages::Location, store::Claim};

/// How much of the shared resources a namespace may use, in bytes. The limit of the store of all namespaces together is that of
/// [`crate::Retention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceQuotas {
    /// Space in the store.
    pub store_per_namespace: u64,
    /// Memory of cached indexes.
    pub index_per_namespace: u64,
    /// Memory of the cached indexes of all namespaces together.
    pub index_total: u64,
}

impl Default for SourceQuotas {
    /// For processes of one user: namespaces are not limited.
    fn default() -> Self {
        Self { store_per_namespace: u64::MAX, index_per_namespace: u64::MAX, index_total: 256 << 20 }
    }
}

/// How much of a shared resource is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The name of the resource in metrics.
    pub resource: &'static str,
    /// Bytes by namespace, in any order.
    pub used: Vec<(String, u64)>,
    /// How often a quota was exceeded.
    pub refusals: u64,
}

/// Whose files a package is made of: the namespace of a Source and its URL.
#[derive(Clone, Copy, Debug)]
pub struct FilesOwner<'a> {
    pub namespace: &'a str,
    pub url: &'a str,
}

impl FilesOwner<'_> {
    pub(crate) fn claim(self) -> Claim {
        Claim::new(self.namespace, self.url, None)
    }
}

/// Returns the source from which a package is requested.
pub(crate) fn claim(resolved: &ResolvedPackage, access: &Access) -> Claim {
    let base_url = match &resolved.location {
        Location::Https { base_url, .. } | Location::Oci { base_url, .. } => base_url,
    };
    let login = AccessDigest::from(access.credentials.as_ref());
    Claim::new(&access.namespace, base_url.as_str(), Some(login))
}
