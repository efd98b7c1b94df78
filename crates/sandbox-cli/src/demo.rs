//! `chandler-sandbox demo`: shows Chandler on local clusters.

mod chart;
mod cluster_class;
mod next_steps;
mod push;
mod walkthrough;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use chandler_cli_support::user_dirs::state_folder;
use chandler_sandbox::{
    Sandbox,
    assets::{Assets, Binary},
    progress,
    repository::ChartRepository,
    sandbox::{Folder, Options},
};
use clap::Args;

use self::{push::Repository, walkthrough::Walkthrough};
use crate::programs::{ProgramArgs, ProgramPaths};

/// The number of workload clusters.
const CLUSTERS: u32 = 2;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Exit when everything is ready, instead of running until Ctrl-C
    #[arg(long)]
    exit: bool,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Folder for the clusters of the demo [default: chandler/demo in the user's state directory]
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub async fn run(arguments: DemoArgs) -> Result<()> {
    let DemoArgs { exit, programs, dir } = arguments;
    let programs = programs.find()?;
    let dir = dir.map_or_else(|| state_folder("demo"), Ok)?;
    let dir = std::path::absolute(&dir).with_context(|| format!("{} is not a valid path", dir.display()))?;
    let progress = progress::display();
    let assets = Assets::ensure(&Binary::SANDBOX, progress.as_ref()).await?;
    let folder = Folder::new(&dir);
    remove_previous(&folder)?;
    let options = Options { dir: dir.clone(), clusters: CLUSTERS, nodes: 1 };
    let sandbox = Sandbox::up(&assets, &options, progress.as_ref()).await?;
    let result = tokio::select! {
        result = run_in(&sandbox, &dir, programs, exit) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    eprintln!("cleaning up");
    sandbox.down().await;
    folder.remove()?;
    std::fs::remove_dir_all(&dir).ok();
    result
}

async fn run_in(sandbox: &Sandbox, dir: &std::path::Path, programs: ProgramPaths, exit: bool) -> Result<()> {
    let progress = progress::display();
    sandbox.wait_ready(CLUSTERS, progress.as_ref()).await?;
    let repository = ChartRepository::start(sandbox.authority(), &dir.join("charts")).await?;
    for chart in [chart::HELLO, chart::NETWORK, chart::CLOUD_PROVIDER] {
        repository.publish(&chart.write(dir)?)?;
    }
    let git = Repository::start(sandbox, dir).await?;
    let walkthrough = Walkthrough::start(sandbox, &repository, dir, programs).await?;
    let ready = show(&walkthrough, &repository, &git).await;
    if ready.is_ok() && !exit {
        walkthrough.print_next_steps()?;
        tokio::signal::ctrl_c().await.context("waiting for Ctrl-C")?;
    }
    walkthrough.stop().await;
    ready
}

async fn show(walkthrough: &Walkthrough<'_>, charts: &ChartRepository, git: &Repository) -> Result<()> {
    walkthrough.wait_addon_ready().await?;
    walkthrough.show_cluster_class(charts).await?;
    walkthrough.show_push(git).await
}

/// Terminates the processes and removes the clusters of an earlier demo that was killed.
fn remove_previous(folder: &Folder) -> Result<()> {
    if let Some(owner) = folder.owner() {
        anyhow::bail!(
            "another demo (process {}) is running in {}: stop it, or choose another folder with --dir",
            owner.pid(),
            folder.root().display()
        );
    }
    folder.terminate_orphans();
    chandler_sandbox::process::terminate_orphans(folder.root());
    Ok(folder.remove()?)
}
