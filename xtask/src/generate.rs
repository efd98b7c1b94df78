//! Writes every generated file.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{
    build,
    command::{command, output},
    generate_proto, rights,
};

/// Generated files and folders, which no person edits.
pub const GENERATED: [&str; 6] = [
    "crates/tool/src/generated",
    "tools/helm/gen",
    "deploy/crds.yaml",
    "docs/reference/api.md",
    "docs/reference/cli.md",
    "docs/reference/rights.md",
];

pub fn run(root: &Path) -> Result<()> {
    generate_proto::run(root)?;
    let chandler = build::run(root, false)?.chandler;
    let chandler = chandler.to_string_lossy();
    write(root, "deploy/crds.yaml", &output(command(root, &chandler, &["crds"]))?)?;
    write(root, "docs/reference/api.md", &output(command(root, &chandler, &["reference", "api"]))?)?;
    write(root, "docs/reference/cli.md", &output(command(root, &chandler, &["reference", "cli"]))?)?;
    let rights =
        std::fs::read_to_string(root.join("deploy/rbac.yaml")).context("reading deploy/rbac.yaml")?;
    write(root, "docs/reference/rights.md", &rights::markdown(&rights)?)
}

fn write(root: &Path, name: &str, text: &str) -> Result<()> {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().context("a generated file has a folder")?)?;
    std::fs::write(&path, text).with_context(|| format!("writing {name}"))
}
