//! Builds both binaries side by side, so that `chandler` finds its driver.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::{self, command};

/// Where the binaries are.
pub struct Built {
    pub chandler: PathBuf,
    pub driver: PathBuf,
}

pub fn run(root: &Path, release: bool) -> Result<Built> {
    let chandler = chandler(root, release)?;
    let built = Built { driver: chandler.with_file_name("chandler-helm"), chandler };
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

/// Builds `chandler` alone.
pub fn chandler(root: &Path, release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "dev" };
    command::run(command(
        root,
        "cargo",
        &["build", "--locked", "--package", "chandler-cli", "--profile", profile],
    ))?;
    Ok(target(root).join(if release { "release" } else { "debug" }).join("chandler"))
}

pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}
