//! Runs the tests of Go and Rust.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    build::{self, Built},
    command::{command, output, run as run_command},
    go,
};

/// Runs every test; with `full` also the ignored ones, which need programs that are not built otherwise.
pub fn run(root: &Path, full: bool) -> Result<()> {
    let built = build(root)?;
    let ignored: &[&str] = if full { &["--", "--include-ignored"] } else { &[] };
    run_command(cargo_test(root, &built, &[&["--no-fail-fast"], ignored].concat()))?;
    if full { Ok(()) } else { list_ignored(root, &built) }
}

/// Runs the tests that need no sandbox.
pub fn quick(root: &Path) -> Result<()> {
    let built = build::run(root, false, &[])?;
    go::in_each_module(root, &["test", "./..."])?;
    run_command(cargo_test(root, &built, &["--lib", "--bins"]))
}

/// Builds everything that the tests need. Meanwhile runs the tests of Go, which need nothing else.
pub fn build(root: &Path) -> Result<Built> {
    build::with_tests(root, || {
        go::programs_of_tests()?;
        go::in_each_module(root, &["test", "./..."])
    })
}

fn cargo_test(root: &Path, built: &Built, arguments: &[&str]) -> Command {
    let mut tests = command(root, "cargo", &[&["test", "--locked", "--workspace"], arguments].concat());
    // A failed test shows objects and logs; a stack would hide them where only the end of the output is kept.
    tests.env("RUST_BACKTRACE", "0");
    tests.env("CHANDLER_BIN", &built.chandler).env("CHANDLER_SANDBOX_BIN", &built.sandbox);
    tests.env("CHANDLER_TOOL", &built.driver);
    tests
}

/// Prints the tests that were left out, with the command that runs them.
fn list_ignored(root: &Path, built: &Built) -> Result<()> {
    let listed =
        output(cargo_test(root, built, &["--quiet", "--", "--ignored", "--list", "--format", "terse"]))?;
    let names: Vec<_> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    if !names.is_empty() {
        eprintln!("xtask: left out {} tests, which `cargo xtask test --full` runs:", names.len());
        for name in names {
            eprintln!("  {name}");
        }
    }
    Ok(())
}
