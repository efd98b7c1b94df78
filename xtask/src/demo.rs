//! Builds, then shows the main job.

use std::path::Path;

use anyhow::Result;
use chandler_assets::Binary;

use crate::{
    build::{self, Built},
    command::{command, run as run_command},
};

pub fn run(root: &Path, exit: bool) -> Result<()> {
    show(root, &build::run(root, false, &Binary::SANDBOX)?, exit)
}

/// Shows the main job with programs that are built.
pub fn show(root: &Path, built: &Built, exit: bool) -> Result<()> {
    let arguments: &[&str] = if exit { &["demo", "--exit"] } else { &["demo"] };
    run_command(command(root, &built.sandbox.to_string_lossy(), arguments))
}
