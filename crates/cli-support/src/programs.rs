//! Finds the package tool's binary.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The name of the Helm driver.
pub const NAME: &str = "chandler-helm";

/// The binary that was named, or the one beside this program.
pub fn find(named: Option<PathBuf>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path,
        None => beside_self()?,
    };
    ensure!(
        path.is_file(),
        "there is no package tool at {}: build it with `cargo xtask build`, or name one with --tool",
        path.display()
    );
    path.canonicalize().with_context(|| format!("resolving {}", path.display()))
}

fn beside_self() -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program's own path")?;
    Ok(own.parent().unwrap_or(Path::new(".")).join(NAME))
}
