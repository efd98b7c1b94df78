//! `chandler-sandbox bench tenants`.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use chandler_bench::{TenantsOptions, TenantsSize};
use clap::Args;

use crate::programs::{ProgramArgs, ProgramPaths};

#[derive(Debug, Args)]
pub struct TenantsArgs {
    /// Number of add-ons that a tenant installs at the same time, half of them of each kind
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    addons: u32,
    /// How often such a number of new add-ons is installed, without attacks and during attacks
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    /// Time between two rounds
    #[arg(long, default_value_t = 5)]
    pause_seconds: u64,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Empty folder for repositories, logs and audit logs [default: a temporary folder]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl TenantsArgs {
    pub fn options(self) -> Result<TenantsOptions> {
        let Self { addons, rounds, pause_seconds, json, programs, dir } = self;
        let ProgramPaths { chandler, tool } = programs.find()?;
        let size = TenantsSize { addons, rounds, pause: Duration::from_secs(pause_seconds) };
        Ok(TenantsOptions { size, chandler, tool, json, dir })
    }
}
