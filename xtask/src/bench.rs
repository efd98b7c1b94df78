//! Makes a release build and runs the benchmark.

use std::path::Path;

use anyhow::Result;

use crate::{
    build,
    command::{command, run as run_command},
};

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let sandbox = build::run(root, true, &[])?.sandbox;
    let mut bench = command(root, &sandbox.to_string_lossy(), &["bench"]);
    bench.args(arguments);
    run_command(bench)
}
