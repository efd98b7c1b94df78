//! Builds the binaries and runs a subcommand of `chandler-sandbox`.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    build::{self, Binaries},
    command::{all_output, command, run as run_command},
    dist::binaries,
};

/// Builds the binaries with optimizations and runs a benchmark. That of the tunnel also measures the agent, which is built as
/// in a release: static where that is possible.
pub fn bench(root: &Path, arguments: &[String]) -> Result<()> {
    let names_agent = |argument: &String| argument == "--agent" || argument.starts_with("--agent=");
    let is_tunnel = arguments.first().is_some_and(|name| name == "tunnel");
    if !is_tunnel || arguments.iter().any(names_agent) {
        return run(root, true, "bench", arguments);
    }
    let target = binaries::is_available().then(binaries::target);
    let agent = build::agent(root, target.as_deref())?.to_string_lossy().into_owned();
    run(root, true, "bench", &[arguments, &["--agent".to_owned(), agent]].concat())
}

/// Builds the binaries, with optimizations if `release`, and runs a subcommand.
pub fn run(root: &Path, release: bool, subcommand: &str, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_built(root, &build::run(root, release, &[])?, subcommand, &arguments)
}

/// Runs a subcommand with binaries that are built already.
pub fn run_built(root: &Path, binaries: &Binaries, subcommand: &str, arguments: &[&str]) -> Result<()> {
    run_command(built(root, binaries, subcommand, arguments))
}

/// Runs a subcommand with binaries that are built already, and returns what it prints.
pub fn output_of_built(
    root: &Path,
    binaries: &Binaries,
    subcommand: &str,
    arguments: &[&str],
) -> Result<String> {
    all_output(built(root, binaries, subcommand, arguments))
}

/// Returns the command that runs a subcommand with binaries that are built already.
pub fn built(root: &Path, binaries: &Binaries, subcommand: &str, arguments: &[&str]) -> Command {
    command(root, &binaries.sandbox.to_string_lossy(), &[&[subcommand], arguments].concat())
}
