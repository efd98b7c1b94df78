//! Builds and runs the demo.

use std::path::Path;

use anyhow::Result;

use crate::{
    build::{self, Binaries},
    sandbox,
};

pub fn run(root: &Path, exit: bool) -> Result<()> {
    run_built(root, &build::for_demo(root)?, exit)
}

/// Runs the demo with binaries that are already built.
pub fn run_built(root: &Path, binaries: &Binaries, exit: bool) -> Result<()> {
    sandbox::run_built(root, binaries, "demo", if exit { &["--exit"] } else { &[] })
}
