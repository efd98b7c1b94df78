//! Reads packages as the manager does, with a cache in the user's cache directory.

use anyhow::{Context as _, Result};
use chandler_cli_support::user_dirs;
use chandler_source::{AddressPolicy, AddressRange, Packages, SourceOptions, Store};
use clap::Args;

#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Allow repositories and registries at this address or range, such as 127.0.0.0/8, even if it is loopback or
    /// link-local; can be repeated
    #[arg(long, value_name = "RANGE", env = "CHANDLER_ALLOW_SOURCE_ADDRESS", value_delimiter = ',')]
    allow_source_address: Vec<AddressRange>,
}

impl SourceArgs {
    pub fn open(self) -> Result<Packages> {
        let Self { allow_source_address } = self;
        let directory = user_dirs::cache_folder("sources")?;
        let store = Store::open(&directory).with_context(|| format!("opening {}", directory.display()))?;
        let addresses = AddressPolicy { allowed: allow_source_address, refused: Vec::new() };
        let options = SourceOptions { addresses, ..SourceOptions::default() };
        Ok(Packages::new(store, options))
    }
}
