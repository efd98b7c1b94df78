//! Measures GitOps: how long a push takes to reach all clusters, how often Sources of one repository poll it, and what a large
//! repository costs.

mod addon;
mod figures;
mod large_repository;
mod run;
mod sources;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    assets::Assets,
    plane::free_port,
    progress::{self, ProgressReporter},
};

use self::{figures::Figures, run::Run};
use crate::{
    chandler_crds,
    controller::Controller,
    environment::{BINARIES, Environment},
};

/// The size of the GitOps benchmark.
#[derive(Clone, Copy, Debug)]
pub struct GitopsSize {
    /// The number of workload clusters.
    pub clusters: u32,
    /// How often each of the two changes is measured: by a push, and by applying the `ExtensionInstance`.
    pub rounds: u32,
    /// The number of Sources of one repository.
    pub sources: u32,
    /// The interval at which these Sources are polled.
    pub interval: Duration,
    /// The number of intervals for which their polls are counted.
    pub intervals: u32,
    /// The number of files of the large repository.
    pub files: u32,
    /// The size of its history in megabytes.
    pub history_mb: u32,
}

/// The configuration of the GitOps benchmark.
#[derive(Clone, Debug)]
pub struct GitopsOptions {
    pub size: GitopsSize,
    /// The path of the `chandler` binary.
    pub chandler: PathBuf,
    /// The path of the package tool.
    pub tool: PathBuf,
    /// The file to which the results are written.
    pub json: Option<PathBuf>,
    /// The folder for repositories, logs and audit logs. `None` means a temporary folder.
    pub dir: Option<PathBuf>,
}

/// Measures GitOps and prints the results as a table.
pub async fn gitops(options: GitopsOptions) -> Result<()> {
    let GitopsOptions { size, chandler, tool, json, dir } = options;
    let progress = progress::display();
    let assets = Assets::ensure(&BINARIES, progress.as_ref()).await?;
    let temporary = tempfile::tempdir().context("creating a temporary folder")?;
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());
    let receiver = format!("127.0.0.1:{}", free_port()?);
    // The default is longer than the shortest interval that can be measured.
    let min_interval = ["--source-min-interval-seconds", "1"].map(str::to_owned);
    let arguments = [vec!["--receiver-address".to_owned(), receiver.clone()], min_interval.to_vec()].concat();
    let controller = Controller::Chandler { chandler, tool, arguments };

    let crds = chandler_crds()?;
    let environment = Environment::start(&assets, &dir, size.clusters, &crds, progress.as_ref()).await?;
    let figures = measure(&environment, &controller, &receiver, size, progress.as_ref()).await;
    environment.kill().await;
    let figures = figures?;
    print!("{}", figures::table(&figures));
    json.map_or(Ok(()), |path| figures::write(&path, &figures))
}

/// `receiver` is the address at which the manager receives webhooks.
async fn measure(
    environment: &Environment,
    controller: &Controller,
    receiver: &str,
    size: GitopsSize,
    progress: &dyn ProgressReporter,
) -> Result<Figures> {
    Run::start(environment, controller, size, progress).await?.run(receiver).await
}
