//! Builds for use, then measures.

use std::path::Path;

use anyhow::Result;

use crate::{
    build,
    command::{command, run as run_command},
};

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let chandler = build::run(root, true)?.chandler;
    let mut bench = command(root, &chandler.to_string_lossy(), &["bench"]);
    bench.args(arguments);
    run_command(bench)
}
