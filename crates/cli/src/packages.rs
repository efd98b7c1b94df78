//! Reads packages as the manager does, with a cache in the user's cache directory.

use anyhow::{Context as _, Result};
use chandler_cli_support::user_dirs;
use chandler_core::addresses::AllowFlag;
use chandler_source::{AddressPolicy, AddressRange, Packages, SourceOptions, Store};
use clap::Args;

#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Allow sources and API servers of workload clusters at this address or range, such as 127.0.0.0/8, even if it is loopback
    /// or link-local; can be repeated
    #[arg(long, value_name = "RANGE", env = "CHANDLER_ALLOW_ADDRESS", value_delimiter = ',')]
    allow_address: Vec<AddressRange>,
    /// Allow repositories and registries at this address or range, such as 127.0.0.0/8, even if it is loopback or
    /// link-local; can be repeated
    #[arg(long, value_name = "RANGE", env = "CHANDLER_ALLOW_SOURCE_ADDRESS", value_delimiter = ',')]
    allow_source_address: Vec<AddressRange>,
}

impl SourceArgs {
    /// Returns which addresses the API servers of workload clusters may have.
    pub fn cluster_addresses(&self) -> AddressPolicy {
        AddressPolicy { allowed: self.allow_address.clone(), ..AddressPolicy::default() }
    }

    pub fn open(self) -> Result<Packages> {
        let Self { allow_address, allow_source_address } = self;
        let directory = user_dirs::cache_folder("sources")?;
        let store = Store::open(&directory).with_context(|| format!("opening {}", directory.display()))?;
        let addresses = AddressPolicy {
            allowed: [allow_address, allow_source_address].concat(),
            flag: AllowFlag::SourceAddress,
            ..AddressPolicy::default()
        };
        let options = SourceOptions { addresses, ..SourceOptions::default() };
        Ok(Packages::new(store, options))
    }
}
