//! Writes the SBOMs of `chandler` and of the tunnel's agent in the CycloneDX format, with every crate that is linked into them.
//! The release workflow makes the SBOM of the Go driver from its binary, in which Go records the modules.

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

/// The newest CycloneDX version that cargo-cyclonedx writes.
const SPEC_VERSION: &str = "1.5";
/// The programs that are shipped, and the folders of their packages.
const PROGRAMS: [(&str, &str); 2] = [("chandler", "crates/cli"), ("chandler-agent", "crates/agent")];

/// Writes the SBOMs into `out`.
pub fn write(root: &Path, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    generate(root)?;
    for (program, package) in PROGRAMS {
        let written = root.join(package).join(format!("{program}_bin.cdx.json"));
        let text = fs::read_to_string(&written).with_context(|| format!("reading {}", written.display()))?;
        // References to the crates of the workspace contain the folder of the build, which is meaningless to users.
        let text = text.replace(&format!("file://{}/", root.display()), "file:///chandler/");
        let path = out.join(format!("{program}.cdx.json"));
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for file in generated_sboms(root)? {
        fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    }
    println!("{}", out.display());
    Ok(())
}

/// Runs cargo-cyclonedx, which writes one file per binary of the workspace next to the Cargo.toml of its package.
fn generate(root: &Path) -> Result<()> {
    let tool = tools::cargo_cyclonedx(root)?;
    let target = binaries::target();
    let arguments = ["cyclonedx", "--manifest-path", "crates/cli/Cargo.toml", "--format", "json"];
    let options =
        ["--spec-version", SPEC_VERSION, "--describe", "binaries", "--no-build-deps", "--target", &target];
    run_command(command(root, &tool.to_string_lossy(), &[&arguments[..], &options].concat()))
}

fn generated_sboms(root: &Path) -> Result<Vec<PathBuf>> {
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
