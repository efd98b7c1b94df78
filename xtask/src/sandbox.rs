//! Builds the binaries and runs a subcommand of `chandler-sandbox`.

use std::path::Path;

use anyhow::Result;

use crate::{
    build::{self, Binaries},
    command::{command, run as run_command},
};

/// Builds the binaries, with optimizations if `release`, and runs a subcommand.
pub fn run(root: &Path, release: bool, subcommand: &str, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_built(root, &build::run(root, release, &[])?, subcommand, &arguments)
}

/// Runs a subcommand with binaries that are built already.
pub fn run_built(root: &Path, binaries: &Binaries, subcommand: &str, arguments: &[&str]) -> Result<()> {
    let arguments = [&[subcommand], arguments].concat();
    run_command(command(root, &binaries.sandbox.to_string_lossy(), &arguments))
}
