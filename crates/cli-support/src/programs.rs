//! Finds the other binaries of Chandler.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Returns the package tool that was named, or the Helm driver beside this program.
pub fn package_tool(named: Option<PathBuf>) -> Result<PathBuf> {
    find(named, "chandler-helm", "package tool", "--tool")
}

/// Returns the package tools that were named, or the Helm driver beside this program.
pub fn package_tools(named: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    if named.is_empty() {
        return Ok(vec![package_tool(None)?]);
    }
    named.into_iter().map(|tool| package_tool(Some(tool))).collect()
}

/// Returns the template service that was named, or the first package tool.
pub fn template_service(named: Option<PathBuf>, tools: &[PathBuf]) -> Result<PathBuf> {
    find(named.or_else(|| tools.first().cloned()), "chandler-helm", "template service", "--templates")
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
