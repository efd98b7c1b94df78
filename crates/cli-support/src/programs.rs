//! Finds the other binaries of Chandler.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Returns the package tool that was named, or the Helm driver beside this program.
pub fn package_tool(named: Option<PathBuf>) -> Result<PathBuf> {
    find(named, "chandler-helm", "package tool", "--tool")
}

/// Returns the `chandler` binary that was named, or the one beside this program.
pub fn chandler(named: Option<PathBuf>) -> Result<PathBuf> {
    find(named, "chandler", "chandler binary", "--chandler")
}

fn find(named: Option<PathBuf>, file_name: &str, what: &str, option: &str) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path,
        None => beside_self(file_name)?,
    };
    ensure!(
        path.is_file(),
        "there is no {what} at {}: build it with `cargo xtask build`, or name one with {option}",
        path.display()
    );
    path.canonicalize().with_context(|| format!("resolving {}", path.display()))
}

fn beside_self(file_name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program's own path")?;
    Ok(own.parent().unwrap_or(Path::new(".")).join(file_name))
}
