//! Builds and runs the demo.

use std::path::Path;

use anyhow::Result;
use chandler_assets::Binary;

use crate::{
    build::{self, Binaries},
    command::{command, run as run_command},
};

pub fn run(root: &Path, exit: bool) -> Result<()> {
    run_built(root, &build::run(root, false, &Binary::SANDBOX)?, exit)
}

/// Runs the demo with binaries that are already built.
pub fn run_built(root: &Path, binaries: &Binaries, exit: bool) -> Result<()> {
    let arguments: &[&str] = if exit { &["demo", "--exit"] } else { &["demo"] };
    run_command(command(root, &binaries.sandbox.to_string_lossy(), arguments))
}
