//! Writes every generated file.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{
    build::{self, Binaries},
    command::{command, output, run as run_command},
    rbac,
};

/// Generated files and folders.
pub const GENERATED: [&str; 8] = [
    "crates/tool/src/generated",
    "crates/e2e/src/bin/manifest-tool/generated",
    "tools/helm/gen",
    "deploy/crds.yaml",
    "docs/reference/api.md",
    "docs/reference/cli.md",
    "docs/reference/rights.md",
    "docs/reference/sandbox-cli.md",
];

/// Builds all binaries, and writes the generated files.
pub fn build_and_run(root: &Path) -> Result<()> {
    run(root, &build::with_targets(root, &["--workspace", "--bins"], || Ok(()))?)
}

/// Writes the generated files with binaries of the whole workspace that were built from the same tree.
pub fn run(root: &Path, binaries: &Binaries) -> Result<()> {
    let proto = binaries.chandler.with_file_name("xtask-proto");
    run_command(command(root, &proto.to_string_lossy(), &[]))?;
    let (chandler, sandbox) = (binaries.chandler.to_string_lossy(), binaries.sandbox.to_string_lossy());
    write(root, "deploy/crds.yaml", &output(command(root, &chandler, &["crds"]))?)?;
    write(root, "docs/reference/api.md", &output(command(root, &chandler, &["reference", "api"]))?)?;
    write(root, "docs/reference/cli.md", &output(command(root, &chandler, &["reference", "cli"]))?)?;
    write(root, "docs/reference/sandbox-cli.md", &output(command(root, &sandbox, &["reference"]))?)?;
    let roles = std::fs::read_to_string(root.join("deploy/rbac.yaml")).context("reading deploy/rbac.yaml")?;
    write(root, "docs/reference/rights.md", &rbac::markdown(&roles)?)
}

fn write(root: &Path, name: &str, text: &str) -> Result<()> {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().context("a generated file has a folder")?)?;
    std::fs::write(&path, text).with_context(|| format!("writing {name}"))
}
