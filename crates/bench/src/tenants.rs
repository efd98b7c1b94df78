//! Measures how much a tenant who attacks slows another tenant down.
//!
//! Two tenants have a namespace and a workload cluster each, and one manager serves both. Each of them installs add-ons while the other
//! one runs all attacks of [`attacks`].

mod addons;
mod attack;
mod attack_runtime;
mod attacks;
mod figures;
mod metrics;
mod objects;
mod outcome;
mod run;
mod tenant;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use chandler_sandbox::{assets::Assets, plane::free_port, progress};

use self::run::Run;
use crate::{
    chandler_crds,
    controller::Controller,
    environment::{BINARIES, Environment},
    read_crds,
};

/// The number of tenants, and of workload clusters.
const TENANTS: u32 = 2;
/// The memory limit of the manager and its processes in MiB: the default of the chart in `deploy/chart`.
const MEMORY_LIMIT_MIB: u32 = 4096;

/// The CRD from which the manager concludes which hooks Cluster API calls.
const CLUSTER_CLASSES: &str = "crd/bases/cluster.x-k8s.io_clusterclasses.yaml";

/// The size of the benchmark of tenants.
#[derive(Clone, Copy, Debug)]
pub struct TenantsSize {
    /// The number of add-ons that a tenant installs at the same time. Half of them are `HelmChartProxy` objects, the others
    /// `ExtensionInstance` objects.
    pub addons: u32,
    /// How often such a number of new add-ons is installed, without attacks and during attacks.
    pub rounds: u32,
    /// The time between two rounds.
    pub pause: Duration,
}

/// The configuration of the benchmark of tenants.
#[derive(Clone, Debug)]
pub struct TenantsOptions {
    pub size: TenantsSize,
    /// The path of the `chandler` binary.
    pub chandler: PathBuf,
    /// The path of the package tool.
    pub tool: PathBuf,
    /// The file to which the results are written.
    pub json: Option<PathBuf>,
    /// The folder for repositories, logs and audit logs. `None` means a temporary folder.
    pub dir: Option<PathBuf>,
}

/// Measures the tenants and prints the results as a table.
pub async fn tenants(options: TenantsOptions) -> Result<()> {
    let TenantsOptions { size, chandler, tool, json, dir } = options;
    let progress = progress::display();
    let assets = Assets::ensure(&BINARIES, progress.as_ref()).await?;
    let temporary = tempfile::tempdir().context("creating a temporary folder")?;
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());
    let hooks = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let controller = Controller::Chandler { chandler, tool, arguments: arguments(hooks) };

    let mut crds = chandler_crds()?;
    crds.extend(read_crds(&assets.capi_config().join(CLUSTER_CLASSES))?);
    let environment =
        Environment::start_unregistered(&assets, &dir, TENANTS, &crds, progress.as_ref()).await?;
    let figures =
        async { Run::start(&environment, &controller, hooks, size, progress.as_ref()).await?.run().await };
    let figures = figures.await;
    environment.kill().await;
    let figures = figures?;
    print!("{}", figures::table(&figures));
    json.map_or(Ok(()), |path| figures::write(&path, &figures))
}

/// Returns the arguments of the manager: the limits of the chart, hooks at an address, and a log in which the address of the metrics
/// can be found.
fn arguments(hooks: SocketAddr) -> Vec<String> {
    let memory = MEMORY_LIMIT_MIB.to_string();
    let (address, endpoint) = (hooks.to_string(), format!("https://{hooks}"));
    [
        ["--memory-limit", memory.as_str()],
        ["--hooks-address", address.as_str()],
        ["--hooks-endpoint", endpoint.as_str()],
        ["--log-format", "json"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}
