//! `chandler-sandbox bench`: measures what the controllers cost.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use chandler_bench::{Options, OtherController, Size};
use clap::{Args, Subcommand};

use crate::programs::{Found, Programs};

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure add-ons on many clusters: install, upgrade, new version, restart, idle, failing, unreachable
    Fleet(FleetArgs),
}

#[derive(Debug, Args)]
pub struct FleetArgs {
    /// How many workload clusters there are
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clusters: u32,
    /// How many add-ons there are, each on every cluster
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    releases: u32,
    /// Write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Do the same work with another controller that serves HelmChartProxy; it finds KUBECONFIG in its environment,
    /// and `{kubeconfig}` and `{dir}` in the command are replaced
    #[arg(long)]
    controller: Option<String>,
    /// Definitions of HelmChartProxy and HelmReleaseProxy that the other controller brings [default: ours]
    #[arg(long, requires = "controller")]
    controller_crds: Option<PathBuf>,
    #[command(flatten)]
    programs: Programs,
    /// How long to watch when there is nothing to do
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// How long to watch while an add-on fails
    #[arg(long, default_value_t = 60)]
    failing_seconds: u64,
    /// How many add-ons fail
    #[arg(long, default_value_t = 1)]
    failing_addons: u32,
    /// Keep logs and audit logs in this folder, which has to be empty [default: a temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl FleetArgs {
    fn options(self) -> Result<Options> {
        let Self {
            clusters,
            releases,
            json,
            controller,
            controller_crds,
            programs,
            idle_seconds,
            failing_seconds,
            failing_addons,
            dir,
        } = self;
        let Found { chandler, tool } = programs.find()?;
        let size = Size {
            clusters,
            addons: releases,
            failing_addons,
            idle: Duration::from_secs(idle_seconds),
            failing: Duration::from_secs(failing_seconds),
        };
        let other = controller.map(|command| OtherController { command, crds: controller_crds });
        Ok(Options { size, chandler, tool, other, json, dir })
    }
}

pub async fn run(command: BenchCommand) -> Result<()> {
    let BenchCommand::Fleet(arguments) = command;
    tokio::select! {
        done = chandler_bench::fleet(arguments.options()?) => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}
