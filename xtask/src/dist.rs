//! Builds the files of a release from the chart in `deploy/chart`. The version is that of Cargo.toml.

pub mod binaries;
mod chart;
mod elf;
pub mod version;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chandler_assets::Binary;
use clap::Args;

use crate::go;

#[derive(Debug, Args)]
pub struct DistArgs {
    /// Version of the release [default: that of Cargo.toml]
    #[arg(long)]
    version: Option<String>,
    /// Repository of the image, without a tag; the image of the agent has the suffix `-agent` [default: those in the chart]
    #[arg(long)]
    image: Option<String>,
    /// Path of the helm CLI [default: that of the sandbox]
    #[arg(long)]
    helm: Option<PathBuf>,
    /// Folder to write to
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Only build the two static binaries of the image into `bin`; takes minutes
    #[arg(long, conflicts_with_all = ["version", "image", "helm"])]
    binaries: bool,
    /// Only build the static binary of the tunnel's agent into `agent`; takes minutes
    #[arg(long, conflicts_with_all = ["version", "image", "helm", "binaries"])]
    agent: bool,
    /// Only build the programs of the demo without official builds into `sandbox`; takes minutes
    #[arg(long, conflicts_with_all = ["version", "image", "helm", "binaries", "agent"])]
    sandbox: bool,
}

pub fn run(root: &Path, arguments: DistArgs) -> Result<()> {
    let DistArgs { version, image, helm, out, binaries, agent, sandbox } = arguments;
    let out = root.join(out);
    if binaries {
        return binaries::build(root, &out.join("bin"));
    }
    if agent {
        return binaries::build_agent(root, &out.join("agent"));
    }
    if sandbox {
        return binaries::build_sandbox(root, &out.join("sandbox"));
    }
    let version = version::parse(version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION")))?;
    let changelog = read(root, "CHANGELOG.md")?;
    let metadata = version::metadata(&version, &changelog)?;
    let helm = match helm {
        Some(helm) => helm,
        // The version that the tests use, so that a release does not depend on the installed helm.
        None => go::programs(&[Binary::Helm])?.path(Binary::Helm).to_owned(),
    };
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let chart = chart::Chart::package(root, &helm, &version, image.as_deref(), &out)?;
    write(&out, "metadata.yaml", &metadata)?;
    write(&out, "addon-components.yaml", &chart.render("deploy/components-values.yaml")?)?;
    write(&out, "chandler.yaml", &chart.render("deploy/manifest-values.yaml")?)?;
    println!("{}", out.display());
    Ok(())
}

fn read(root: &Path, name: &str) -> Result<String> {
    std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::write(folder.join(name), text).with_context(|| format!("writing {name}"))
}
