//! Runs Go commands. All of them use the same build flags, so that they share Go's build cache.

pub mod modules;

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result};
use chandler_assets::{Assets, Binary, KubernetesVersion, less_garbage_collection, progress::Lines};

use crate::command::{command, run};

/// The folders of the Go modules.
pub const MODULES: [&str; 2] = ["tools/helm", "tools/promcheck"];

/// Returns a Go command in a folder of the repository.
pub fn go(root: &Path, folder: &str, arguments: &[&str]) -> Command {
    let mut go = command(&root.join(folder), "go", arguments);
    go.env("CGO_ENABLED", "0").env("GOFLAGS", "-trimpath").env("GOWORK", "off");
    go.envs(less_garbage_collection());
    go
}

/// Runs a Go command in every module.
pub fn in_each_module(root: &Path, arguments: &[&str]) -> Result<()> {
    MODULES.iter().try_for_each(|module| run(go(root, module, arguments)))
}

/// Builds the Helm driver as a static binary at `path`.
pub fn driver(root: &Path, path: &Path) -> Result<()> {
    run(build_driver(root, path))
}

/// Returns the command that builds the Helm driver. It does not record the Git commit, nor whether the work tree was clean, so
/// that equal sources give equal bytes.
pub fn build_driver(root: &Path, path: &Path) -> Command {
    let version = format!("-s -w -X main.version=v{}", env!("CARGO_PKG_VERSION"));
    let path = path.to_string_lossy();
    go(root, "tools/helm", &["build", "-buildvcs=false", "-ldflags", &version, "-o", &path, "."])
}

/// Finds or builds programs of the sandbox. Prints progress as lines, because cargo prints at the same time.
pub fn programs(binaries: &[Binary]) -> Result<Assets> {
    block_on(Assets::ensure(binaries, &Lines::default()))
}

/// Finds or builds the programs that the tests run, of every Kubernetes version that most of them need.
pub fn test_programs() -> Result<()> {
    block_on(Assets::ensure_every_version(&Lines::default()))
}

/// Returns whether none of the programs would have to be built, for control planes of the given Kubernetes version.
pub fn are_built(kubernetes: KubernetesVersion, binaries: &[Binary]) -> Result<bool> {
    block_on(Assets::are_built(kubernetes, binaries))
}

fn block_on<T>(programs: impl Future<Output = Result<T, chandler_assets::Error>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(programs).context("building the sandbox's programs")
}
