//! `chandler bench fleet`: what a controller costs, on clusters of this machine.

mod chart;
mod controller;
mod fleet;
mod helm;
mod meter;
mod releases;
mod report;
mod traffic;
mod usage;
mod world;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use chandler_sandbox::{
    assets::{Assets, Binary},
    progress::{self, Progress},
};
use clap::{Args, Subcommand};
use serde_json::Value;

use self::{controller::Controller, fleet::Fleet, report::Phase, world::World};
use crate::driver;

/// Every program the bench runs; the Cluster API core only lends its kinds.
const BINARIES: [Binary; 4] = [Binary::Etcd, Binary::KubeApiserver, Binary::CapiManager, Binary::Helm];

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
    /// The package tool's binary [default: chandler-helm beside this program]
    #[arg(long, env = "CHANDLER_TOOL")]
    tool: Option<PathBuf>,
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

/// How much work there is.
#[derive(Clone, Copy, Debug)]
struct Size {
    clusters: u32,
    addons: u32,
    failing_addons: u32,
    idle: Duration,
    failing: Duration,
}

pub async fn run(command: BenchCommand) -> Result<()> {
    let BenchCommand::Fleet(arguments) = command;
    tokio::select! {
        done = fleet(arguments) => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}

async fn fleet(arguments: FleetArgs) -> Result<()> {
    let FleetArgs {
        clusters,
        releases,
        json,
        controller,
        controller_crds,
        tool,
        idle_seconds,
        failing_seconds,
        failing_addons,
        dir,
    } = arguments;
    let size = Size {
        clusters,
        addons: releases,
        failing_addons,
        idle: Duration::from_secs(idle_seconds),
        failing: Duration::from_secs(failing_seconds),
    };
    let ours = Controller::Ours { tool: driver::find(tool)? };
    let other = controller.map(|command| Controller::Other { command });
    let other_kinds = controller_crds.as_deref().map_or_else(own_kinds, read_kinds)?;
    let display = progress::display();
    let assets = Assets::ensure(&BINARIES, display.as_ref()).await?;
    let temporary = tempfile::tempdir().context("making a temporary folder")?;
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());

    let bench = Bench { assets, size, progress: display };
    let mut phases = bench.measure(&dir.join("chandler"), &ours, &own_kinds()?, true).await?;
    let compared = match other {
        Some(other) => bench.measure(&dir.join("other"), &other, &other_kinds, false).await,
        None => Ok(Vec::new()),
    };
    // What was measured is told even if the other controller cannot do the work.
    let failed = compared.map(|more| phases.extend(more)).err();
    print!("{}", report::table(&phases));
    if let Some(path) = json {
        report::write(&path, &phases)?;
    }
    failed.map_or(Ok(()), Err)
}

struct Bench {
    assets: Assets,
    size: Size,
    progress: Box<dyn Progress>,
}

impl Bench {
    /// The whole work with one controller, on fresh planes; then, if asked for, with the helm CLI beside it.
    async fn measure(
        &self,
        dir: &Path,
        controller: &Controller,
        kinds: &[Value],
        helm: bool,
    ) -> Result<Vec<Phase>> {
        let progress = self.progress.as_ref();
        progress.note(&format!("measuring {}", controller.name()));
        let world = World::up(&self.assets, dir, self.size.clusters, kinds, progress).await?;
        let measured = self.phases(&world, controller, helm).await;
        world.down().await;
        measured
    }

    async fn phases(&self, world: &World, controller: &Controller, helm: bool) -> Result<Vec<Phase>> {
        let progress = self.progress.as_ref();
        let mut phases = Fleet::start(world, controller, self.size, progress).await?.run().await?;
        if helm {
            phases
                .extend(helm::run(world, self.assets.path(Binary::Helm), self.size.addons, progress).await?);
        }
        Ok(phases)
    }
}

fn own_kinds() -> Result<Vec<Value>> {
    Ok(chandler_api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
}

fn read_kinds(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("reading {}", path.display()))
}
