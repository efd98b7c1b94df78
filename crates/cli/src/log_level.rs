//! `chandler log-level`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::control;

/// Show or change the log level of a running manager
///
/// Run it in the manager's Pod, for example with `kubectl exec`. The level also applies to the package tool. A restart
/// resets it to the level of `--log-level`.
#[derive(Debug, Args)]
pub struct LogLevelArgs {
    /// New level, or a list such as `info,chandler_tool=debug` [default: show the current level]
    level: Option<String>,
    /// The manager's --store
    #[arg(long, env = "CHANDLER_STORE", default_value = crate::manager::DEFAULT_STORE)]
    store: PathBuf,
}

pub async fn run(arguments: LogLevelArgs) -> Result<()> {
    let LogLevelArgs { level, store } = arguments;
    let request = ["log-level"].into_iter().chain(level.as_deref()).collect::<Vec<_>>().join(" ");
    println!("{}", control::request(&control::socket_path(&store), &request).await?);
    Ok(())
}
