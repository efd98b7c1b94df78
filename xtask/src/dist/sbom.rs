//! The bill of materials of `chandler`, as CycloneDX: every crate that is linked into it. That of the Go driver is made by
//! the release workflow from the program itself, in which Go records its modules.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::binaries;
use crate::{
    command::{command, run as run_command},
    tools,
};

/// The newest version of the format that the tool writes.
const FORMAT: &str = "1.5";

/// Writes it into `out`.
pub fn write(root: &Path, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    chandler(root, &out.join("chandler.cdx.json"))?;
    println!("{}", out.display());
    Ok(())
}

/// cargo-cyclonedx writes one file per program of the workspace, beside the manifest of its package.
fn chandler(root: &Path, path: &Path) -> Result<()> {
    let tool = tools::cargo_cyclonedx(root)?;
    let target = binaries::target();
    let arguments = ["cyclonedx", "--manifest-path", "crates/cli/Cargo.toml", "--format", "json"];
    let options =
        ["--spec-version", FORMAT, "--describe", "binaries", "--no-build-deps", "--target", &target];
    run_command(command(root, &tool.to_string_lossy(), &[&arguments[..], &options].concat()))?;
    let written = root.join("crates/cli/chandler_bin.cdx.json");
    let text = fs::read_to_string(&written).with_context(|| format!("reading {}", written.display()))?;
    for file in beside_manifests(root)? {
        fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    }
    // References to our own crates name the folder that they were built in, which is nothing to a user.
    let text = text.replace(&format!("file://{}/", root.display()), "file:///chandler/");
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn beside_manifests(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let crates = fs::read_dir(root.join("crates"))?.map(|entry| entry.map(|entry| entry.path()));
    for package in crates.chain([Ok(root.join("xtask")), Ok(root.join("xtask/proto"))]) {
        for entry in fs::read_dir(package?)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with("_bin.cdx.json") {
                found.push(path);
            }
        }
    }
    Ok(found)
}
