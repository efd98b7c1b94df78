//! Pushes an OCI image layout to a registry, and prints the reference with the digest.

mod challenge;
mod reference;
mod registry;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use serde_json::Value;

use self::{
    reference::Reference,
    registry::{Credentials, Registry},
};

/// Push an OCI image layout to a registry.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder of the layout
    layout: PathBuf,
    /// Where to push to: `REGISTRY/REPOSITORY:TAG`
    reference: String,
    /// File with a certificate authority of the registry, in addition to those of the system
    #[arg(long)]
    ca_file: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { layout, reference, ca_file } = Arguments::parse();
    let reference: Reference = reference.parse()?;
    let authority =
        ca_file.map(|file| fs::read(&file).with_context(|| format!("reading {}", file.display())));
    let registry = Registry::connect(&reference, authority.transpose()?, credentials()).await?;
    let digest = push(&registry, &layout, &reference).await?;
    println!("{reference}@{digest}");
    Ok(())
}

/// Reads the credentials from the environment: every process on the machine can read arguments.
fn credentials() -> Option<Credentials> {
    let [username, password] =
        ["REGISTRY_USERNAME", "REGISTRY_PASSWORD"].map(|name| std::env::var(name).ok());
    Some(Credentials { username: username?, password: password? })
}

/// Pushes all blobs, then the manifest that refers to them. Returns the digest of the manifest.
async fn push(registry: &Registry, layout: &Path, reference: &Reference) -> Result<String> {
    let index = fs::read(layout.join("index.json"))
        .with_context(|| format!("reading the index of {}", layout.display()))?;
    let index: Value = serde_json::from_slice(&index).context("reading index.json")?;
    let descriptor = &index["manifests"][0];
    let digest = text(descriptor, "digest")?;
    let manifest = blob(layout, digest)?;
    let document: Value = serde_json::from_slice(&manifest).context("reading the manifest")?;
    let layers = document["layers"].as_array().context("the manifest has no layers")?;
    for descriptor in layers.iter().chain([&document["config"]]) {
        let digest = text(descriptor, "digest")?;
        registry
            .push_blob(digest, || blob(layout, digest))
            .await
            .with_context(|| format!("pushing {digest}"))?;
    }
    let media_type = text(descriptor, "mediaType")?;
    registry
        .push_manifest(&reference.tag, media_type, digest, manifest)
        .await
        .with_context(|| format!("pushing the manifest {digest}"))?;
    Ok(digest.to_owned())
}

fn text<'a>(descriptor: &'a Value, field: &str) -> Result<&'a str> {
    descriptor[field].as_str().with_context(|| format!("a descriptor of the layout has no {field}"))
}

fn blob(layout: &Path, digest: &str) -> Result<Vec<u8>> {
    let path = layout.join("blobs").join(digest.replace(':', "/"));
    fs::read(&path).with_context(|| format!("reading {}", path.display()))
}
