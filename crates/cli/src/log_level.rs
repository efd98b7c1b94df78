//! `chandler log-level`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::control;

/// Show or change the log level of the manager that runs here
///
/// Run it where the manager runs: `kubectl exec` into its pod. The package tool follows. A restart brings back the
/// level of `--log-level`.
#[derive(Debug, Args)]
pub struct LogLevelArgs {
    /// Level, or a list such as `info,chandler_tool=debug` [default: show it]
    level: Option<String>,
    /// The manager's --store
    #[arg(long, env = "CHANDLER_STORE", default_value = crate::manager::STORE)]
    store: PathBuf,
}

pub async fn run(arguments: LogLevelArgs) -> Result<()> {
    let LogLevelArgs { level, store } = arguments;
    let question = ["log-level"].into_iter().chain(level.as_deref()).collect::<Vec<_>>().join(" ");
    println!("{}", control::ask(&control::socket(&store), &question).await?);
    Ok(())
}
