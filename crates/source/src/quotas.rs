//! What namespaces use of shared resources, and for which source.

use chandler_core::quota::{Exceeded, Quotas};

use crate::{
    Access, ResolvedPackage, SourceError, access_digest::AccessDigest, packages::Location, store::Claim,
};

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

/// A shared resource in messages, and the flags of its limits.
#[derive(Debug)]
pub(crate) struct SharedResource {
    name: &'static str,
    quota_flag: &'static str,
    limit_flag: &'static str,
}

pub(crate) const STORE: SharedResource = SharedResource {
    name: "the package store",
    quota_flag: "--store-quota-per-namespace",
    limit_flag: "--store-limit",
};
pub(crate) const INDEXES: SharedResource = SharedResource {
    name: "indexes of repositories in memory",
    quota_flag: "--index-quota-per-namespace",
    limit_flag: "--index-limit",
};

impl SharedResource {
    /// Returns the error of a namespace that needs `added` bytes more than it may use.
    pub fn refused(&self, exceeded: Exceeded, quotas: Quotas, namespace: &str, added: u64) -> SourceError {
        let namespace = namespace.to_owned();
        match exceeded {
            Exceeded::Namespace { used } => SourceError::QuotaExceeded {
                namespace,
                resource: self.name,
                used,
                added,
                quota: quotas.per_namespace,
                flag: self.quota_flag,
            },
            Exceeded::Total => SourceError::SharedQuotaExceeded {
                namespace,
                resource: self.name,
                limit: quotas.total,
                flag: self.limit_flag,
            },
        }
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
