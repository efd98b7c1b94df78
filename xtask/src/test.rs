//! Runs the tests: Go's, then Rust's. The sandbox's parts are made first, so that their progress can be seen.

use std::path::Path;

use anyhow::Result;

use crate::{
    build,
    command::{command, run as run_command},
};

/// Where Go code is.
pub const GO_MODULES: [&str; 2] = ["tools/helm", "tools/promcheck"];

pub fn run(root: &Path, quick: bool) -> Result<()> {
    let built = build::run(root, false)?;
    for module in GO_MODULES {
        run_command(command(&root.join(module), "go", &["test", "./..."]))?;
    }
    let mut tests = if quick {
        command(root, "cargo", &["test", "--locked", "--workspace", "--lib", "--bins"])
    } else {
        run_command(command(root, &built.sandbox.to_string_lossy(), &["prepare"]))?;
        command(root, "cargo", &["test", "--locked", "--workspace", "--no-fail-fast"])
    };
    // What a failed test leaves behind is shown; its stack says little, and hides that where only the end is kept.
    tests.env("RUST_BACKTRACE", "0");
    tests.env("CHANDLER_BIN", &built.chandler).env("CHANDLER_SANDBOX_BIN", &built.sandbox);
    tests.env("CHANDLER_TOOL", &built.driver);
    run_command(tests)
}
