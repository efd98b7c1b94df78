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
    let profile = if release { "release" } else { "dev" };
    command::run(command(
        root,
        "cargo",
        &["build", "--locked", "--package", "chandler-cli", "--profile", profile],
    ))?;
    let folder = target(root).join(if release { "release" } else { "debug" });
    let driver = folder.join("chandler-helm");
    let version = format!("-s -w -X main.version=v{}", env!("CARGO_PKG_VERSION"));
    let path = driver.to_string_lossy().into_owned();
    let mut go = command(
        &root.join("tools/helm"),
        "go",
        &["build", "-trimpath", "-ldflags", &version, "-o", &path, "."],
    );
    go.env("CGO_ENABLED", "0");
    command::run(go)?;
    Ok(Built { chandler: folder.join("chandler"), driver })
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}
