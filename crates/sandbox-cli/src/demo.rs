//! `chandler-sandbox demo`: the main job, on clusters of this machine.

mod chart;
mod fitting_out;
mod story;
mod what_next;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use chandler_cli_support::place::state_folder;
use chandler_sandbox::{
    Sandbox,
    assets::{Assets, Binary},
    progress,
    repository::ChartRepository,
    sandbox::{Folder, Options},
};
use clap::Args;

use self::story::Story;
use crate::programs::{Found, Programs};

/// How many workload clusters the demo has.
const CLUSTERS: u32 = 2;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Leave when everything is ready, instead of staying until Ctrl-C
    #[arg(long)]
    exit: bool,
    #[command(flatten)]
    programs: Programs,
    /// Where the demo keeps its clusters while it runs [default: chandler/demo in the user's state directory]
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub async fn run(arguments: DemoArgs) -> Result<()> {
    let DemoArgs { exit, programs, dir } = arguments;
    let programs = programs.find()?;
    let dir = dir.map_or_else(|| state_folder("demo"), Ok)?;
    let dir = std::path::absolute(&dir).with_context(|| format!("{} is no usable path", dir.display()))?;
    let display = progress::display();
    let assets = Assets::ensure(&Binary::SANDBOX, display.as_ref()).await?;
    let folder = Folder::new(&dir);
    clear(&folder)?;
    let options = Options { dir: dir.clone(), clusters: CLUSTERS, nodes: 1 };
    let sandbox = Sandbox::up(&assets, &options, display.as_ref()).await?;
    let told = tokio::select! {
        told = tell(&sandbox, &dir, programs, exit) => told,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    eprintln!("cleaning up");
    sandbox.down().await;
    folder.remove()?;
    std::fs::remove_dir_all(&dir).ok();
    told
}

async fn tell(sandbox: &Sandbox, dir: &std::path::Path, programs: Found, exit: bool) -> Result<()> {
    let display = progress::display();
    sandbox.wait_ready(CLUSTERS, display.as_ref()).await?;
    let repository = ChartRepository::start(sandbox.authority(), &dir.join("charts")).await?;
    for chart in [chart::HELLO, chart::NETWORK, chart::CLOUD_PROVIDER] {
        repository.publish(&chart.write(dir)?)?;
    }
    let story = Story::begin(sandbox, &repository, dir, programs).await?;
    let ready = show(&story, &repository).await;
    if ready.is_ok() && !exit {
        story.what_next()?;
        tokio::signal::ctrl_c().await.context("waiting for Ctrl-C")?;
    }
    story.end().await;
    ready
}

async fn show(story: &Story<'_>, repository: &ChartRepository) -> Result<()> {
    story.until_ready().await?;
    story.fit_out(repository).await
}

/// A demo that was killed left its clusters: they are ended and removed, and this one starts afresh.
fn clear(folder: &Folder) -> Result<()> {
    if let Some(owner) = folder.owner() {
        anyhow::bail!(
            "another demo (process {}) runs in {}: stop that one, or choose another folder with --dir",
            owner.pid(),
            folder.root().display()
        );
    }
    folder.end_orphans();
    chandler_sandbox::process::end_orphans(folder.root());
    Ok(folder.remove()?)
}
