//! `chandler-sandbox bench`: measures the resource usage of the controllers.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use chandler_bench::{Options, OtherController, Size};
use clap::{Args, Subcommand};

use crate::programs::{ProgramArgs, ProgramPaths};

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure add-ons on many clusters: install, upgrade, new version, restart, idle, failing, unreachable
    Fleet(FleetArgs),
}

#[derive(Debug, Args)]
pub struct FleetArgs {
    /// Number of workload clusters
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clusters: u32,
    /// Number of add-ons, each installed on every cluster
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    releases: u32,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Command line of another controller for HelmChartProxy to measure with the same work; KUBECONFIG is set in its
    /// environment, and `{kubeconfig}` and `{dir}` in the command are replaced
    #[arg(long)]
    controller: Option<String>,
    /// File with the CRDs of HelmChartProxy and HelmReleaseProxy of the other controller [default: those of Chandler]
    #[arg(long, requires = "controller")]
    controller_crds: Option<PathBuf>,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Duration of the phase without changes
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Duration of the phase with failing add-ons
    #[arg(long, default_value_t = 60)]
    failing_seconds: u64,
    /// Number of failing add-ons
    #[arg(long, default_value_t = 1)]
    failing_addons: u32,
    /// Empty folder for logs and audit logs [default: a temporary folder]
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
        let ProgramPaths { chandler, tool } = programs.find()?;
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
