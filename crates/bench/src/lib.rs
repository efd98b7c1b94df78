//! What a controller costs, measured on clusters of this machine.

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

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    assets::{Assets, Binary},
    progress::{self, Progress},
};
use serde_json::Value;

use crate::{controller::Controller, fleet::Fleet, report::Phase, world::World};

/// Every program the bench runs; the Cluster API core only lends its kinds.
const BINARIES: [Binary; 4] = [Binary::Etcd, Binary::KubeApiserver, Binary::CapiManager, Binary::Helm];

/// How much work there is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How many workload clusters there are.
    pub clusters: u32,
    /// How many add-ons there are, each on every cluster.
    pub addons: u32,
    /// How many add-ons fail.
    pub failing_addons: u32,
    /// How long to watch when there is nothing to do.
    pub idle: Duration,
    /// How long to watch while an add-on fails.
    pub failing: Duration,
}

/// Another controller that serves `HelmChartProxy`.
#[derive(Clone, Debug)]
pub struct OtherController {
    /// A command line, in which `{kubeconfig}` and `{dir}` are replaced.
    pub command: String,
    /// Its definitions of the kinds; `None` means ours.
    pub crds: Option<PathBuf>,
}

/// What is measured, and with which programs.
#[derive(Clone, Debug)]
pub struct Options {
    pub size: Size,
    /// The `chandler` binary.
    pub chandler: PathBuf,
    /// The package tool's binary.
    pub tool: PathBuf,
    /// Does the same work after ours.
    pub other: Option<OtherController>,
    /// Where the figures are written.
    pub json: Option<PathBuf>,
    /// Where logs and audit logs are kept; `None` means a temporary folder.
    pub dir: Option<PathBuf>,
}

/// Measures add-ons on many clusters, and prints the figures as a table.
pub async fn fleet(options: Options) -> Result<()> {
    let Options { size, chandler, tool, other, json, dir } = options;
    let ours = Controller::Ours { chandler, tool };
    let other_kinds =
        other.as_ref().and_then(|other| other.crds.as_deref()).map_or_else(own_kinds, read_kinds)?;
    let other = other.map(|other| Controller::Other { command: other.command });
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
    // What was measured is printed even if the other controller cannot do the work.
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
