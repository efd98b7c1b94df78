//! Packages of all sources, as the manager reads them, in a store of the user's own.

use anyhow::{Context as _, Result};
use chandler_cli_support::user_dirs;
use chandler_source::{AddressPolicy, AddressRange, Packages, SourceOptions, Store};
use clap::Args;

#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Address, or range such as 127.0.0.0/8, at which repositories and registries may be although it is loopback or
    /// link-local; may be given several times
    #[arg(long, value_name = "RANGE", env = "CHANDLER_ALLOW_SOURCE_ADDRESS", value_delimiter = ',')]
    allow_source_address: Vec<AddressRange>,
}

impl SourceArgs {
    pub fn open(self) -> Result<Packages> {
        let Self { allow_source_address } = self;
        let folder = user_dirs::cache_folder("sources")?;
        let store = Store::open(&folder).with_context(|| format!("using {}", folder.display()))?;
        let addresses = AddressPolicy { allowed: allow_source_address, refused: Vec::new() };
        let options = SourceOptions { addresses, ..SourceOptions::default() };
        Ok(Packages::new(store, options))
    }
}
