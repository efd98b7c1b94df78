//! Builds the images without a container daemon: one OCI image layout for Chandler and one for the agent of the tunnel, from
//! their static binaries. Equal inputs give equal bytes, and so the same digest.

pub mod contents;
mod layer;
mod layout;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::{contents::Image, layout::Labels};
use crate::{
    command::{command, run as run_command},
    dist::{binaries, version},
    sbom,
};

#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Folder to write to: the static binaries, the layouts into `image`, and the SBOMs of the images into `sbom`
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Version of the release [default: that of Cargo.toml]
    #[arg(long)]
    version: Option<String>,
    /// Commit that the images are built from, for their labels
    #[arg(long)]
    revision: Option<String>,
    /// URL of the source code, for the labels of the images
    #[arg(long)]
    source: Option<String>,
    /// File with the certificate authorities of the web, which the image of Chandler contains
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    certificates: PathBuf,
    /// Push the images: `REGISTRY/REPOSITORY:TAG` is Chandler, the repository of the agent has the suffix `-agent`. The
    /// credentials are read from the variables `REGISTRY_USERNAME` and `REGISTRY_PASSWORD`
    #[arg(long)]
    push: Option<String>,
    /// File with a certificate authority of the registry, in addition to those of the system
    #[arg(long, requires = "push")]
    ca_file: Option<PathBuf>,
    /// Only for tests: take the programs from this folder, whether or not they are static, and do not compress the layers
    #[arg(long, conflicts_with = "push")]
    debug: Option<PathBuf>,
}

pub fn run(root: &Path, arguments: &ImageArgs) -> Result<()> {
    let out = root.join(&arguments.out);
    let version = version::parse(arguments.version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION")))?;
    let programs = programs(root, &out, arguments.debug.as_deref())?;
    let compress = arguments.debug.is_none();
    let labels = Labels {
        version: format!("v{version}"),
        revision: arguments.revision.clone(),
        source: arguments.source.clone(),
    };
    for (image, folder) in contents::IMAGES.iter().zip(&programs) {
        let layout = out.join("image").join(image.name);
        let files = image.files(folder, &root.join(&arguments.certificates));
        let digest = layout::write(image, &files, &labels, compress, &layout)
            .with_context(|| format!("writing the image {}", image.name))?;
        sbom::write_image(root, image, &files, &labels.version, &digest, &out.join("sbom"))?;
        println!("{} {digest}", layout.display());
    }
    match &arguments.push {
        Some(reference) => contents::IMAGES
            .iter()
            .try_for_each(|image| push(root, image, &out, reference, arguments.ca_file.as_deref())),
        None => Ok(()),
    }
}

/// Returns the folders with the programs of each image, which are built unless the caller has them.
fn programs(root: &Path, out: &Path, debug: Option<&Path>) -> Result<[PathBuf; 2]> {
    if let Some(folder) = debug {
        let folder = root.join(folder);
        return Ok([folder.clone(), folder]);
    }
    let folders = [out.join("bin"), out.join("agent")];
    binaries::build(root, &folders[0])?;
    binaries::build_agent(root, &folders[1])?;
    Ok(folders)
}

/// Runs the program that pushes images. It is a package of its own, because only this needs an HTTP client.
fn push(root: &Path, image: &Image, out: &Path, reference: &str, ca_file: Option<&Path>) -> Result<()> {
    let reference = reference_of(image, reference)?;
    let layout = out.join("image").join(image.name);
    let layout = layout.to_string_lossy();
    let mut push = command(root, "cargo", &["run", "--quiet", "--locked", "--package", "xtask-push", "--"]);
    push.args([&*layout, &reference]);
    if let Some(ca_file) = ca_file {
        let ca_file = fs::canonicalize(ca_file).with_context(|| format!("finding {}", ca_file.display()))?;
        push.arg("--ca-file").arg(ca_file);
    }
    run_command(push)
}

/// Returns the reference of an image, given that of Chandler.
fn reference_of(image: &Image, chandler: &str) -> Result<String> {
    let tagged =
        chandler.rsplit_once(':').filter(|(repository, tag)| repository.contains('/') && !tag.contains('/'));
    let (repository, tag) = tagged.with_context(|| {
        format!("{chandler} is not a reference such as registry.example/team/chandler:v1.2.3")
    })?;
    ensure!(!repository.contains('@'), "{chandler} has a digest: the registry computes it, so push to a tag");
    Ok(format!("{repository}{}:{tag}", image.suffix))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    #[test]
    fn the_agent_has_a_repository_of_its_own() {
        let [chandler, agent] = &contents::IMAGES;
        let reference = "registry.example:5000/team/chandler:v1.2.3";
        assert_eq!(reference_of(chandler, reference).unwrap(), reference);
        assert_eq!(
            reference_of(agent, reference).unwrap(),
            "registry.example:5000/team/chandler-agent:v1.2.3"
        );
        for invalid in [
            "registry.example/chandler",
            "registry.example:5000/chandler",
            "chandler:v1",
            "r.example/c@sha256:ab",
        ] {
            assert!(reference_of(chandler, invalid).is_err(), "{invalid}");
        }
    }
}
