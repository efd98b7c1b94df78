//! Structured logs on standard error.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Libraries that tell each step of theirs, unless asked otherwise.
const QUIET: &str = "pubgrub=warn";

/// Starts logging at `level`, a level or a list such as `info,chandler_tool=debug`.
pub fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(format!("{QUIET},{level}"))?)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
    }
    Ok(())
}
