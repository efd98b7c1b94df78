//! Builds the binaries and runs random sequences of user actions and faults.

use std::path::Path;

use anyhow::Result;

use crate::{
    build,
    command::{command, run as run_command},
};

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let sandbox = build::run(root, false, &[])?.sandbox;
    let mut chaos = command(root, &sandbox.to_string_lossy(), &["chaos"]);
    chaos.args(arguments);
    run_command(chaos)
}
