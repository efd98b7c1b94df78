//! Builds, then shows the main job.

use std::path::Path;

use anyhow::Result;

use crate::{
    build,
    command::{command, run as run_command},
};

pub fn run(root: &Path, exit: bool) -> Result<()> {
    let sandbox = build::run(root, false)?.sandbox;
    let arguments: &[&str] = if exit { &["demo", "--exit"] } else { &["demo"] };
    run_command(command(root, &sandbox.to_string_lossy(), arguments))
}
