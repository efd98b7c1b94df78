//! Writes an OCI image layout: a folder with an index and blobs named by their digests.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

use super::{
    contents::{Entry, Image, USER},
    layer::{self, Layer},
};
use crate::sha256;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// What the labels of an image say about the release.
pub struct Labels {
    pub version: String,
    pub revision: Option<String>,
    pub source: Option<String>,
}

/// Writes the layout of an image into `folder`, which is replaced. Returns the digest of the manifest.
pub fn write(
    image: &Image,
    entries: &BTreeMap<String, Entry>,
    labels: &Labels,
    compress: bool,
    folder: &Path,
) -> Result<String> {
    let blobs = folder.join("blobs/sha256");
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(&blobs).with_context(|| format!("creating {}", blobs.display()))?;
    let unnamed = blobs.join("layer");
    let layer = layer::write(entries, compress, &unnamed)?;
    let named = blobs.join(&layer.digest);
    fs::rename(&unnamed, &named).with_context(|| format!("writing {}", named.display()))?;
    let platform = json!({"architecture": architecture(std::env::consts::ARCH)?, "os": "linux"});
    let config = blob(&blobs, CONFIG, &config(image, &layer, labels, &platform))?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [{
            "mediaType": layer.media_type,
            "digest": format!("sha256:{}", layer.digest),
            "size": layer.size,
        }],
        "annotations": annotations(image, labels),
    });
    let mut descriptor = blob(&blobs, MANIFEST, &manifest)?;
    let digest = descriptor["digest"].as_str().unwrap_or_default().to_owned();
    descriptor["platform"] = platform;
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": labels.version});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor],
    });
    write_json(&folder.join("index.json"), &index)?;
    write_json(&folder.join("oci-layout"), &json!({"imageLayoutVersion": "1.0.0"}))?;
    Ok(digest)
}

/// Returns the configuration. It has no time of creation, which would change with every build.
fn config(image: &Image, layer: &Layer, labels: &Labels, platform: &Value) -> Value {
    json!({
        "architecture": platform["architecture"],
        "os": platform["os"],
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": [image.entrypoint()],
            "WorkingDir": "/",
            "Labels": annotations(image, labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.diff_id)]},
    })
}

fn annotations(image: &Image, labels: &Labels) -> Map<String, Value> {
    let known = [
        ("title", Some(image.name)),
        ("description", Some(image.description)),
        ("licenses", Some("Apache-2.0")),
        ("version", Some(&*labels.version)),
        ("revision", labels.revision.as_deref()),
        ("source", labels.source.as_deref()),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.into())).collect()
}

/// Returns the name that registries use for an architecture.
fn architecture(rust: &str) -> Result<&'static str> {
    match rust {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("there are no images for the architecture {other}"),
    }
}

/// Writes a blob and returns its descriptor.
fn blob(blobs: &Path, media_type: &str, content: &Value) -> Result<Value> {
    let text = content.to_string();
    let digest = sha256::digest(text.as_bytes());
    let path = blobs.join(&digest);
    fs::write(&path, &text).with_context(|| format!("writing {}", path.display()))?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": text.len()}))
}

fn write_json(path: &Path, content: &Value) -> Result<()> {
    fs::write(path, content.to_string()).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use std::io::Read as _;

    use super::*;
    use crate::image::contents::IMAGES;

    fn read(folder: &Path, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = fs::read(folder.join("blobs/sha256").join(digest)).unwrap();
        assert_eq!(sha256::digest(&bytes), digest);
        assert_eq!(bytes.len(), descriptor["size"]);
        bytes
    }

    #[test]
    fn equal_files_give_the_same_image_whenever_it_is_built() {
        let home = tempfile::tempdir().unwrap();
        let labels = Labels { version: "v1.2.3".into(), revision: Some("abc".into()), source: None };
        let mut digests = Vec::new();
        for name in ["first", "the second"] {
            let programs = home.path().join(name);
            fs::create_dir_all(&programs).unwrap();
            for file in ["certificates", "chandler", "chandler-helm"] {
                fs::write(programs.join(file), file.repeat(1000)).unwrap();
            }
            let entries = IMAGES[0].files(&programs, &programs.join("certificates"));
            let layout = home.path().join("layouts").join(name);
            let [digest, again] =
                [(); 2].map(|()| write(&IMAGES[0], &entries, &labels, true, &layout).unwrap());
            assert_eq!(digest, again, "a layout is replaced");
            digests.push(digest);
        }
        assert_eq!(digests[0], digests[1]);

        let layout = home.path().join("layouts/first");
        let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
        assert_eq!(index["manifests"][0]["digest"], digests[0]);
        let manifest: Value = serde_json::from_slice(&read(&layout, &index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&read(&layout, &manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/chandler"]));
        assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], "abc");
        assert_eq!(config["config"]["Labels"].get("org.opencontainers.image.source"), None);
        let mut archive = Vec::new();
        let compressed = read(&layout, &manifest["layers"][0]);
        flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut archive).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256::digest(&archive)));
        let mut archive = tar::Archive::new(&*archive);
        let entries: Vec<_> = archive.entries().unwrap().map(Result::unwrap).collect();
        assert_eq!(entries.len(), 10);
        for entry in entries {
            let (header, path) = (entry.header(), entry.path().unwrap().into_owned());
            let is_writable =
                ["tmp", "var/cache/chandler"].iter().any(|writable| path == Path::new(writable));
            assert_eq!(header.uid().unwrap(), if is_writable { 65532 } else { 0 }, "{}", path.display());
            assert_eq!(header.mtime().unwrap(), 0);
            let expected = if path.ends_with("ca-certificates.crt") { 0o644 } else { 0o755 };
            assert_eq!(header.mode().unwrap(), expected, "{}", path.display());
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let home = tempfile::tempdir().unwrap();
        let labels = Labels { version: "v1.2.3".into(), revision: None, source: None };
        let entries = IMAGES[1].files(home.path(), Path::new("none"));
        let error = write(&IMAGES[1], &entries, &labels, true, &home.path().join("layout")).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("adding /chandler-agent") && error.contains("opening"), "{error}");
    }
}
