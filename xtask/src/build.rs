//! Builds the binaries side by side, so that they find each other. Rust and Go compile at the same time.

use std::{
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Result, anyhow};
use chandler_assets::Binary;

use crate::{
    command::{self, command},
    go,
};

/// Where the binaries are.
pub struct Built {
    pub chandler: PathBuf,
    pub sandbox: PathBuf,
    pub driver: PathBuf,
}

impl Built {
    fn below(folder: &Path) -> Self {
        Self {
            chandler: folder.join("chandler"),
            sandbox: folder.join("chandler-sandbox"),
            driver: folder.join("chandler-helm"),
        }
    }
}

/// Builds the binaries, and programs of the sandbox.
pub fn run(root: &Path, release: bool, programs: &[Binary]) -> Result<Built> {
    let built = Built::below(&folder(root, release));
    at_once(
        || cargo(root, release, &["--package", "chandler-cli", "--package", "chandler-sandbox-cli"]),
        || {
            go::driver(root, &built.driver)?;
            go::programs(programs).map(drop)
        },
    )?;
    Ok(built)
}

/// Builds the binaries together with all tests, in one compilation: cargo would otherwise build some dependencies twice,
/// because tests enable more of their features.
pub fn with_tests(root: &Path, meanwhile: impl FnOnce() -> Result<()> + Send) -> Result<Built> {
    let built = Built::below(&folder(root, false));
    at_once(
        || cargo(root, false, &["--workspace", "--all-targets"]),
        || {
            go::driver(root, &built.driver)?;
            meanwhile()
        },
    )?;
    Ok(built)
}

/// The folder in which cargo builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

fn folder(root: &Path, release: bool) -> PathBuf {
    target(root).join(if release { "release" } else { "debug" })
}

fn cargo(root: &Path, release: bool, what: &[&str]) -> Result<()> {
    let profile = if release { "release" } else { "dev" };
    command::run(command(root, "cargo", &[&["build", "--locked", "--profile", profile], what].concat()))
}

/// Runs both to their ends; if both fail, the first failure is returned.
fn at_once(rust: impl FnOnce() -> Result<()>, go: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    thread::scope(|scope| {
        let go = scope.spawn(go);
        let rust = rust();
        let go = go.join().map_err(|_| anyhow!("the thread that runs Go panicked"))?;
        rust.and(go)
    })
}
