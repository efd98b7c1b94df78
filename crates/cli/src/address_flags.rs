//! The flags that decide which addresses Chandler may connect to.

use chandler_core::addresses::{AddressPolicy, AddressRange, AllowFlag};
use clap::Args;

/// The manager's flags for the addresses of sources and of clusters.
#[derive(Debug, Args)]
pub struct AddressFlags {
    /// Allow sources, API servers of workload clusters and their proxies at this address or range, such as 10.0.0.0/8, even if
    /// it is loopback, private or refused. Link-local addresses and metadata services of clouds need a single address or a
    /// link-local range; can be repeated
    #[arg(long, value_name = "RANGE", env = "CHANDLER_ALLOW_ADDRESS", value_delimiter = ',')]
    allow_address: Vec<AddressRange>,
    /// Refuse sources, API servers of workload clusters and their proxies in private networks, except at addresses of
    /// --allow-address
    #[arg(long)]
    refuse_private_addresses: bool,
    /// Refuse sources and API servers of workload clusters whose certificate is not verified (`insecureSkipTLSVerify`,
    /// `insecure-skip-tls-verify`)
    #[arg(long)]
    refuse_unverified_tls: bool,
    /// Allow repositories and registries at this address or range, such as 127.0.0.0/8, even if it is loopback,
    /// link-local, private or refused; can be repeated
    #[arg(long, value_name = "RANGE")]
    allow_source_address: Vec<AddressRange>,
    /// Refuse repositories and registries at this address or range; can be repeated
    #[arg(long, value_name = "RANGE")]
    refuse_source_address: Vec<AddressRange>,
}

/// The addresses that sources and clusters may have.
#[derive(Debug)]
pub struct AddressPolicies {
    pub sources: AddressPolicy,
    pub clusters: AddressPolicy,
}

impl AddressFlags {
    /// Returns the policies. `hub` is `HOST:PORT` of the proxy of the tunnels, which belongs to this installation.
    pub fn policies(self, hub: Option<&String>) -> AddressPolicies {
        let Self {
            allow_address,
            refuse_private_addresses,
            refuse_unverified_tls,
            allow_source_address,
            refuse_source_address,
        } = self;
        let clusters = AddressPolicy {
            allowed: allow_address.clone(),
            refused: Vec::new(),
            refuse_private: refuse_private_addresses,
            refuse_unverified: refuse_unverified_tls,
            trusted: hub.cloned().into_iter().collect(),
            flag: AllowFlag::Address,
        };
        let sources = AddressPolicy {
            allowed: [allow_address, allow_source_address].concat(),
            refused: refuse_source_address,
            trusted: Vec::new(),
            flag: AllowFlag::SourceAddress,
            ..clusters.clone()
        };
        AddressPolicies { sources, clusters }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        flags: AddressFlags,
    }

    #[test]
    fn flags_for_sources_do_not_change_the_policy_of_clusters() {
        let arguments = [
            "manager",
            "--allow-address=10.0.0.1",
            "--refuse-private-addresses",
            "--allow-source-address=10.0.0.2",
            "--refuse-source-address=192.0.2.0/24",
        ];
        let hub = "hub:1".to_owned();
        let AddressPolicies { sources, clusters } = Command::parse_from(arguments).flags.policies(Some(&hub));
        let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!(
            (&sources.allowed, &sources.refused),
            (&ranges(&["10.0.0.1", "10.0.0.2"]), &ranges(&["192.0.2.0/24"]))
        );
        assert_eq!((&clusters.allowed, clusters.refused.len()), (&ranges(&["10.0.0.1"]), 0));
        assert!(sources.refuse_private && clusters.refuse_private && !clusters.refuse_unverified);
        assert!(sources.trusted.is_empty() && clusters.trusts("hub", 1));
    }
}
