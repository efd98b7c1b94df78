//! Writes SBOMs in the CycloneDX format: of each program, with every crate or Go module that it is made of, and of each image.
//! Equal inputs give equal bytes.

mod crates;
mod cyclonedx;
mod modules;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::cyclonedx::{Bom, Component};
use crate::{
    image::contents::{CERTIFICATES, Entry, Image},
    sha256,
};

/// The version of all programs.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The programs that are shipped.
const PROGRAMS: [&str; 3] = ["chandler", "chandler-agent", "chandler-helm"];

#[derive(Debug, Args)]
pub struct SbomArgs {
    /// Folder to write to
    #[arg(long, default_value = "dist/sbom")]
    out: PathBuf,
}

/// Writes the SBOM of every program.
pub fn run(root: &Path, SbomArgs { out }: &SbomArgs) -> Result<()> {
    let out = root.join(out);
    PROGRAMS.iter().try_for_each(|name| write(&program(root, name)?, &out, name))?;
    println!("{}", out.display());
    Ok(())
}

/// Writes the SBOM of an image, with those of its programs.
pub fn write_image(
    root: &Path,
    image: &Image,
    files: &BTreeMap<String, Entry>,
    version: &str,
    digest: &str,
    out: &Path,
) -> Result<()> {
    let subject = Component::new("container", image.name, version)
        .with_reference(format!("image:{}", image.name))
        .with_license("Apache-2.0")
        .with_sha256(digest.strip_prefix("sha256:").context("a digest has an algorithm")?);
    let mut bom = Bom::new(subject);
    for name in image.programs {
        bom.contain(program(root, name)?.with_file(&hash(files, name)?));
    }
    if files.contains_key(CERTIFICATES) {
        let hash = hash(files, CERTIFICATES)?;
        // The file of the distribution has no version of its own: its content identifies it.
        let file = Component::new("file", "ca-certificates.crt", &hash[..12]).with_sha256(&hash);
        bom.contain(Bom::new(file));
    }
    write(&bom, out, &format!("{}-image", image.name))
}

fn program(root: &Path, name: &str) -> Result<Bom> {
    match name {
        "chandler" => crates::bom(root, "chandler-cli", name),
        "chandler-agent" => crates::bom(root, "chandler-agent", name),
        "chandler-helm" => modules::bom(root, name),
        other => bail!("there is no program {other}"),
    }
    .with_context(|| format!("listing the components of {name}"))
}

fn hash(files: &BTreeMap<String, Entry>, path: &str) -> Result<String> {
    match files.get(path) {
        Some(Entry::File { source, .. }) => sha256::file_digest(source),
        _ => bail!("the image has no file {path}"),
    }
}

fn write(bom: &Bom, out: &Path, name: &str) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let path = out.join(format!("{name}.cdx.json"));
    fs::write(&path, bom.json()?).with_context(|| format!("writing {}", path.display()))
}
