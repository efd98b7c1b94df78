//! Measures the resource usage of a controller on local clusters.

mod chart;
mod cluster_registration;
mod controller;
mod environment;
mod fleet;
mod gitops;
mod goals;
mod helm;
mod meter;
mod numbers;
mod placement;
mod plot;
mod releases;
mod report;
mod results;
mod scaling;
mod tenants;
mod traffic;
mod tunnel;
mod usage;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    assets::{Assets, Binary},
    progress::{self, ProgressReporter},
};
use serde_json::Value;

pub use self::{
    gitops::{GitopsOptions, GitopsSize, gitops},
    placement::{PlacementOptions, PlacementSize, placement},
    results::{compare_fleets, plot_results},
    tenants::{TenantsOptions, TenantsSize, tenants},
    tunnel::{TunnelHubOptions, TunnelOptions, TunnelSize, serve_tunnel_hub, tunnel},
};
use crate::{
    controller::{Controller, WITHOUT_HEALTH},
    environment::{BINARIES, Environment},
    fleet::Fleet,
    report::{Phase, Results},
};

/// The size of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of workload clusters.
    pub clusters: u32,
    /// The number of add-ons, each installed on every cluster.
    pub addons: u32,
    /// The number of failing add-ons.
    pub failing_addons: u32,
    /// The duration of the phase without changes.
    pub idle: Duration,
    /// The duration of the phase with failing add-ons.
    pub failing: Duration,
}

/// Another controller for `HelmChartProxy`.
#[derive(Clone, Debug)]
pub struct OtherController {
    /// Its command line, in which `{kubeconfig}` and `{dir}` are replaced.
    pub command: String,
    /// The file with its CRDs. `None` means those of Chandler.
    pub crds: Option<PathBuf>,
}

/// The configuration of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    pub size: Size,
    /// The path of the `chandler` binary.
    pub chandler: PathBuf,
    /// The path of the package tool.
    pub tool: PathBuf,
    /// Whether Chandler watches the objects of releases.
    pub health: bool,
    /// A controller to measure after Chandler.
    pub other: Option<OtherController>,
    /// The file to which the results are written.
    pub json: Option<PathBuf>,
    /// The folder for logs and audit logs. `None` means a temporary folder.
    pub dir: Option<PathBuf>,
}

/// Measures add-ons on many clusters and prints the results as a table.
pub async fn fleet(options: Options) -> Result<()> {
    let Options { size, chandler, tool, health, other, json, dir } = options;
    let arguments = if health { Vec::new() } else { vec![WITHOUT_HEALTH.to_owned()] };
    let chandler = Controller::Chandler { chandler, tool, arguments };
    let other_crds =
        other.as_ref().and_then(|other| other.crds.as_deref()).map_or_else(chandler_crds, read_crds)?;
    let other = other.map(|other| Controller::Other { command: other.command });
    let progress = progress::display();
    let binaries = [&BINARIES[..], &[Binary::Helm]].concat();
    let assets = Assets::ensure(&binaries, progress.as_ref()).await?;
    let temporary = tempfile::tempdir().context("creating a temporary folder")?;
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());

    let bench = Bench { assets, size, progress };
    let mut phases = bench.measure(&dir.join("chandler"), &chandler, &chandler_crds()?, true).await?;
    let other_phases = match other {
        Some(other) => bench.measure(&dir.join("other"), &other, &other_crds, false).await,
        None => Ok(Vec::new()),
    };
    // The results of Chandler are printed even if the other controller fails.
    let error = other_phases.map(|other_phases| phases.extend(other_phases)).err();
    print!("{}", report::table(&phases));
    if let Some(path) = json {
        let results = Results { clusters: size.clusters, addons: size.addons, phases };
        report::write(&path, &results)?;
    }
    error.map_or(Ok(()), Err)
}

struct Bench {
    assets: Assets,
    size: Size,
    progress: Box<dyn ProgressReporter>,
}

impl Bench {
    /// Measures a controller in a new environment and, if `helm` is set, the helm CLI afterwards.
    async fn measure(
        &self,
        dir: &Path,
        controller: &Controller,
        crds: &[Value],
        helm: bool,
    ) -> Result<Vec<Phase>> {
        let progress = self.progress.as_ref();
        progress.note(&format!("measuring {}", controller.name()));
        let environment = Environment::start(&self.assets, dir, self.size.clusters, crds, progress).await?;
        let phases = self.run_phases(&environment, controller, helm).await;
        environment.kill().await;
        phases
    }

    async fn run_phases(
        &self,
        environment: &Environment,
        controller: &Controller,
        helm: bool,
    ) -> Result<Vec<Phase>> {
        let progress = self.progress.as_ref();
        let mut phases = Fleet::start(environment, controller, self.size, progress).await?.run().await?;
        if helm {
            let program = self.assets.path(Binary::Helm);
            phases.extend(helm::run(environment, program, self.size.addons, progress).await?);
        }
        Ok(phases)
    }
}

fn chandler_crds() -> Result<Vec<Value>> {
    Ok(chandler_api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
}

fn read_crds(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("reading {}", path.display()))
}
