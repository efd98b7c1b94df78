//! The manager's flags that limit what one namespace can do to others.

use chandler_core::tenancy::DefaultAccount;
use chandler_source::SourceQuotas;
use clap::Args;

/// A namespace may use this part of the store, so that two namespaces together cannot fill it.
const DEFAULT_SHARE: u64 = 4;

/// The manager's flags for quotas and logins of sources.
#[derive(Debug, Args)]
pub struct TenantFlags {
    /// Maximum space of one namespace in the store, in MiB: packages, files of Sources, catalogs and downloads in progress; its
    /// unused packages are removed first [default: a quarter of --store-limit]
    #[arg(long, value_name = "MIB")]
    store_quota_per_namespace: Option<u64>,
    /// Maximum memory of cached indexes of repositories in MiB; the namespace that uses most loses its least recently used index
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    index_limit: u64,
    /// Maximum memory of the cached indexes of one namespace in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    index_quota_per_namespace: u64,
    /// Refuse a Secret with a login from another namespace unless its annotation `chandler.dev/hosts` lists the hosts that the
    /// login may be sent to
    #[arg(long)]
    pub require_login_hosts: bool,
    /// ServiceAccount of workload clusters as which objects of releases are read, written and deleted that name none, as NAME in
    /// the namespace of the release or as NAMESPACE/NAME [default: the user of the kubeconfig]
    #[arg(long, value_name = "ACCOUNT", value_parser = DefaultAccount::parse)]
    pub default_workload_service_account: Option<DefaultAccount>,
    /// Do not read AddonTenancies, for a manager with --namespace that may not list them: its namespace is not restricted
    #[arg(long)]
    pub ignore_tenancies: bool,
}

impl TenantFlags {
    /// Returns the quotas. `store_limit` is that of all namespaces together, in MiB.
    pub fn quotas(&self, store_limit: u64) -> SourceQuotas {
        let bytes = |mib: u64| mib.saturating_mul(1 << 20);
        SourceQuotas {
            store_per_namespace: bytes(self.store_quota_per_namespace.unwrap_or(store_limit / DEFAULT_SHARE)),
            index_per_namespace: bytes(self.index_quota_per_namespace),
            index_total: bytes(self.index_limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_gets_a_quarter_of_the_store_by_default() {
        for (flag, expected) in [(None, 512 << 20), (Some(100), 100 << 20)] {
            let flags = TenantFlags {
                store_quota_per_namespace: flag,
                index_limit: 256,
                index_quota_per_namespace: 64,
                require_login_hosts: false,
                default_workload_service_account: None,
                ignore_tenancies: false,
            };
            assert_eq!(flags.quotas(2048).store_per_namespace, expected);
        }
    }
}
