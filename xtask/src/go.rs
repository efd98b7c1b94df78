//! Runs Go commands. All of them use the same build flags, so that they share Go's build cache.

pub mod modules;

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use chandler_assets::{
    Assets, Binary, Build, Builder, KubernetesVersion, Released, less_garbage_collection, progress::Lines,
};

use crate::command::{command, run};

/// The folders of the Go modules.
pub const MODULES: [&str; 2] = [DRIVER, "tools/promcheck"];
const DRIVER: &str = "tools/helm";
/// The duration of the driver's first build on two cores.
const USUAL_DRIVER_TIME: Duration = Duration::from_secs(200);

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

/// Builds the Helm driver as a static binary at `path`, and prints progress as lines.
pub fn driver(root: &Path, path: &Path) -> Result<()> {
    let output = driver_output(path);
    let build = Build {
        module: &root.join(DRIVER),
        flags: &["-trimpath"],
        output: &output.each_ref().map(String::as_str),
        packages: &["."],
        usual: USUAL_DRIVER_TIME,
    };
    let lines = Lines::default();
    block_on(Builder::new(&lines).run("chandler-helm", None, build)).context("building the Helm driver")
}

/// Returns the command that builds the Helm driver.
pub fn build_driver(root: &Path, path: &Path) -> Command {
    let output = driver_output(path);
    go(root, DRIVER, &[&["build"], &output.each_ref().map(String::as_str)[..], &["."]].concat())
}

/// Returns the flags for the driver. It does not record the Git commit, nor whether the work tree was clean, so that equal
/// sources give equal bytes.
fn driver_output(path: &Path) -> [String; 5] {
    let version = format!("-s -w -X main.version=v{}", env!("CARGO_PKG_VERSION"));
    let path = path.to_string_lossy().into_owned();
    ["-buildvcs=false".to_owned(), "-ldflags".to_owned(), version, "-o".to_owned(), path]
}

/// Finds or builds programs of the sandbox. Prints progress as lines, because cargo prints at the same time.
pub fn programs(binaries: &[Binary]) -> Result<Assets> {
    of_sandbox(Assets::ensure(binaries, &Lines::default()))
}

/// Finds or builds the programs that the tests run, of every Kubernetes version that most of them need.
pub fn test_programs() -> Result<()> {
    of_sandbox(Assets::ensure_every_version(&Lines::default()))
}

/// Downloads the programs of a release of Chandler.
pub fn released(remote: &str, tag: &str, commit: &str) -> Result<Option<Released>> {
    let lines = Lines::default();
    block_on(Released::download(remote, tag, commit, &lines)).context("downloading the release")
}

/// Returns whether none of the programs would have to be built, for control planes of the given Kubernetes version.
pub fn are_built(kubernetes: KubernetesVersion, binaries: &[Binary]) -> Result<bool> {
    of_sandbox(Assets::are_built(kubernetes, binaries))
}

fn of_sandbox<T>(programs: impl Future<Output = Result<T, chandler_assets::Error>>) -> Result<T> {
    block_on(programs).context("building the sandbox's programs")
}

fn block_on<T>(build: impl Future<Output = Result<T, chandler_assets::Error>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(build)?)
}
