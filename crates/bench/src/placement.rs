//! Measures placements on many clusters: what the manager costs when nothing has to be installed.
//!
//! The management cluster and the manager are real. The workload clusters are replayed: one real cluster gets all
//! releases, and a few endpoints repeat its answers for all others ([`replay`]).

mod changes;
mod comparisons;
mod figures;
mod lease_log;
mod management_log;
mod open_files;
mod placements;
mod recording;
mod replay;
mod replay_traffic;
mod replayed_clusters;
mod requests;
mod run;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    assets::Assets,
    progress::{self, ProgressReporter},
};

pub use self::figures::{Figures, panels, write};
use self::run::Run;
use crate::{
    chandler_crds,
    controller::Controller,
    environment::{BINARIES, Environment},
};

/// The size of the placement benchmark.
#[derive(Clone, Copy, Debug)]
pub struct PlacementSize {
    /// The number of replayed clusters, at least 2.
    pub clusters: u32,
    /// The number of placements, each of which selects all clusters.
    pub placements: u32,
    /// The number of label changes that are measured.
    pub changes: u32,
    /// The duration of the phase in which labels change all the time.
    pub churn: Duration,
    /// The duration of the phase without changes.
    pub idle: Duration,
    /// Whether a restart and the phase without changes are measured without health, too.
    pub compare_health: bool,
    /// Whether they are measured with drift, too.
    pub compare_drift: bool,
}

/// The configuration of the placement benchmark.
#[derive(Clone, Debug)]
pub struct PlacementOptions {
    pub size: PlacementSize,
    /// The path of the `chandler` binary.
    pub chandler: PathBuf,
    /// The path of the package tool.
    pub tool: PathBuf,
    /// The file to which the results are written.
    pub json: Option<PathBuf>,
    /// The folder for logs and audit logs. `None` means a temporary folder.
    pub dir: Option<PathBuf>,
}

/// Measures placements and prints the results as a table.
pub async fn placement(options: PlacementOptions) -> Result<()> {
    let PlacementOptions { size, chandler, tool, json, dir } = options;
    open_files::raise_limit(size.clusters)?;
    let progress = progress::display();
    let assets = Assets::ensure(&BINARIES, progress.as_ref()).await?;
    let temporary = tempfile::tempdir().context("creating a temporary folder")?;
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());
    let controller = Controller::Chandler { chandler, tool, arguments: Vec::new() };

    let environment = Environment::start(&assets, &dir, 1, &chandler_crds()?, progress.as_ref()).await?;
    let figures = measure(&environment, &controller, size, progress.as_ref()).await;
    environment.kill().await;
    let figures = figures?;
    print!("{}", figures::table(&figures));
    json.map_or(Ok(()), |path| write(&path, &figures))
}

async fn measure(
    environment: &Environment,
    controller: &Controller,
    size: PlacementSize,
    progress: &dyn ProgressReporter,
) -> Result<Figures> {
    Run::start(environment, controller, size, progress).await?.run().await
}
