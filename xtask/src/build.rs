//! Builds the binaries into one folder, where they find each other. Rust and Go compile in parallel.
//!
//! The agent of the tunnel is built with them for tests, and alone with its own profile for releases and benchmarks.

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

/// The profile of the agent in Cargo.toml, which is also the name of a folder.
pub const AGENT_PROFILE: &str = "agent";

/// The paths of the binaries.
pub struct Binaries {
    pub chandler: PathBuf,
    pub sandbox: PathBuf,
    pub driver: PathBuf,
    /// The agent of the tunnel, not optimized for size. Only [`with_tests`] builds it.
    pub agent: PathBuf,
}

impl Binaries {
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            chandler: folder.join("chandler"),
            sandbox: folder.join("chandler-sandbox"),
            driver: folder.join("chandler-helm"),
            agent: folder.join("chandler-agent"),
        }
    }
}

const ALL: &[&str] = &["--package", "chandler-cli", "--package", "chandler-sandbox-cli"];
/// What the demo runs: without the commands of `chandler-sandbox` that it does not use.
pub const DEMO: &[&str] =
    &["--package", "chandler-cli", "--package", "chandler-sandbox-cli", "--no-default-features"];

/// Builds the binaries and the given programs of the sandbox.
pub fn run(root: &Path, release: bool, programs: &[Binary]) -> Result<Binaries> {
    with_programs(root, release, ALL, programs)
}

/// Builds the binaries and the programs of the demo.
pub fn for_demo(root: &Path) -> Result<Binaries> {
    with_programs(root, false, DEMO, &Binary::SANDBOX)
}

fn with_programs(root: &Path, release: bool, packages: &[&str], programs: &[Binary]) -> Result<Binaries> {
    let binaries = Binaries::in_folder(&folder(root, release));
    in_parallel(
        || cargo(root, release, packages),
        || {
            go::driver(root, &binaries.driver)?;
            go::programs(programs).map(drop)
        },
    )?;
    Ok(binaries)
}

/// Returns where the binaries are that were not built for a release.
pub fn binaries(root: &Path) -> Binaries {
    Binaries::in_folder(&folder(root, false))
}

/// Builds the binaries together with all tests and calls `meanwhile` in parallel. With separate compilations, cargo
/// would build some dependencies twice, because tests enable more of their features.
pub fn with_tests(root: &Path, meanwhile: impl FnOnce() -> Result<()> + Send) -> Result<Binaries> {
    with_targets(root, &["--workspace", "--all-targets"], meanwhile)
}

/// Builds what the arguments of cargo choose, the binaries among it, and calls `meanwhile` in parallel.
pub fn with_targets(
    root: &Path,
    arguments: &[&str],
    meanwhile: impl FnOnce() -> Result<()> + Send,
) -> Result<Binaries> {
    let binaries = binaries(root);
    in_parallel(
        || cargo(root, false, arguments),
        || {
            go::driver(root, &binaries.driver)?;
            meanwhile()
        },
    )?;
    Ok(binaries)
}

/// Builds the agent with the profile of a release, and returns its path. `target` is a target triple, `None` that of this machine.
pub fn agent(root: &Path, target: Option<&str>) -> Result<PathBuf> {
    let arguments = ["build", "--locked", "--package", "chandler-agent", "--profile", AGENT_PROFILE];
    let for_target = target.map_or_else(Vec::new, |target| vec!["--target", target]);
    command::run(command(root, "cargo", &[&arguments[..], &for_target].concat()))?;
    let folder = target.map_or_else(|| self::target(root), |target| self::target(root).join(target));
    Ok(folder.join(AGENT_PROFILE).join("chandler-agent"))
}

/// Returns cargo's target folder.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

fn folder(root: &Path, release: bool) -> PathBuf {
    target(root).join(if release { "release" } else { "debug" })
}

fn cargo(root: &Path, release: bool, packages: &[&str]) -> Result<()> {
    let profile = if release { "release" } else { "dev" };
    command::run(command(root, "cargo", &[&["build", "--locked", "--profile", profile], packages].concat()))
}

/// Runs both functions to completion. If both fail, returns the error of the first one.
pub fn in_parallel(
    first: impl FnOnce() -> Result<()>,
    second: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = first();
        let second = second.join().map_err(|_| anyhow!("a thread panicked"))?;
        first.and(second)
    })
}
