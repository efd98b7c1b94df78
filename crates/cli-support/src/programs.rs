//! Finds Chandler's other binaries.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Returns the given package tool, or the Helm driver in the folder of this program.
pub fn package_tool(path: Option<PathBuf>) -> Result<PathBuf> {
    find(path, "chandler-helm", "package tool", "--tool")
}

/// Returns the given package tools, or the Helm driver in the folder of this program.
pub fn package_tools(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    if paths.is_empty() {
        return Ok(vec![package_tool(None)?]);
    }
    paths.into_iter().map(|tool| package_tool(Some(tool))).collect()
}

/// Returns the given template service, or the first package tool.
pub fn template_service(path: Option<PathBuf>, tools: &[PathBuf]) -> Result<PathBuf> {
    find(path.or_else(|| tools.first().cloned()), "chandler-helm", "template service", "--templates")
}

/// Returns the given `chandler` binary, or the one in the folder of this program.
pub fn chandler(path: Option<PathBuf>) -> Result<PathBuf> {
    find(path, "chandler", "chandler binary", "--chandler")
}

fn find(path: Option<PathBuf>, file_name: &str, what: &str, option: &str) -> Result<PathBuf> {
    let path = match path {
        Some(path) => path,
        None => sibling(file_name)?,
    };
    ensure!(
        path.is_file(),
        "there is no {what} at {}: build it with `cargo xtask build`, or set its path with {option}",
        path.display()
    );
    path.canonicalize().with_context(|| format!("resolving {}", path.display()))
}

fn sibling(file_name: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().context("finding the path of this program")?;
    Ok(executable.parent().unwrap_or(Path::new(".")).join(file_name))
}
