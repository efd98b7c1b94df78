//! Builds the binaries and runs a subcommand of `chandler-sandbox`.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    build::{self, Binaries},
    command::{all_output, command, run as run_command},
};

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

fn built(root: &Path, binaries: &Binaries, subcommand: &str, arguments: &[&str]) -> Command {
    command(root, &binaries.sandbox.to_string_lossy(), &[&[subcommand], arguments].concat())
}
