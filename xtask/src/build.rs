//! Builds the binaries side by side, so that they find each other.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::{self, command};

/// Where the binaries are.
pub struct Built {
    pub chandler: PathBuf,
    pub sandbox: PathBuf,
    pub driver: PathBuf,
}

pub fn run(root: &Path, release: bool) -> Result<Built> {
    let folder = cargo(root, release, &["chandler-cli", "chandler-sandbox-cli"])?;
    let built = Built {
        chandler: folder.join("chandler"),
        sandbox: folder.join("chandler-sandbox"),
        driver: folder.join("chandler-helm"),
    };
    driver(root, &built.driver)?;
    Ok(built)
}

/// Builds the Helm driver, which is static, to this path.
pub fn driver(root: &Path, path: &Path) -> Result<()> {
    let version = format!("-s -w -X main.version=v{}", env!("CARGO_PKG_VERSION"));
    let path = path.to_string_lossy();
    let mut go = command(
        &root.join("tools/helm"),
        "go",
        &["build", "-trimpath", "-ldflags", &version, "-o", &path, "."],
    );
    go.env("CGO_ENABLED", "0");
    command::run(go)
}

/// Builds `chandler-sandbox` alone.
pub fn sandbox(root: &Path) -> Result<PathBuf> {
    Ok(cargo(root, false, &["chandler-sandbox-cli"])?.join("chandler-sandbox"))
}

/// Builds the binaries of packages; returns the folder that holds them.
fn cargo(root: &Path, release: bool, packages: &[&str]) -> Result<PathBuf> {
    let profile = if release { "release" } else { "dev" };
    let mut build = command(root, "cargo", &["build", "--locked", "--profile", profile]);
    build.args(packages.iter().flat_map(|package| ["--package", package]));
    command::run(build)?;
    Ok(target(root).join(if release { "release" } else { "debug" }))
}

pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}
