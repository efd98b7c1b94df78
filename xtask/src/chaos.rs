//! Builds the binaries and runs random sequences of user actions and faults.

use std::path::Path;

use anyhow::Result;

use crate::{
    build::{self, Binaries},
    command::{command, run as run_command},
};

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_built(root, &build::run(root, false, &[])?, &arguments)
}

/// Runs sequences with binaries that are built already.
pub fn run_built(root: &Path, binaries: &Binaries, arguments: &[&str]) -> Result<()> {
    let mut chaos = command(root, &binaries.sandbox.to_string_lossy(), &["chaos"]);
    chaos.args(arguments);
    run_command(chaos)
}
