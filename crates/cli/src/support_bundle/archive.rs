//! Collects files and writes them to a compressed archive.

use std::{collections::BTreeMap, fs::OpenOptions, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;

use super::scrubber::SecretScrubber;

/// The top-level directory of the archive.
const DIRECTORY: &str = "chandler-support";

#[derive(Default)]
pub struct Archive(BTreeMap<String, Vec<u8>>);

impl Archive {
    pub fn add_json(&mut self, name: &str, value: &impl Serialize) -> Result<()> {
        self.0.insert(name.to_owned(), serde_json::to_vec_pretty(value)?);
        Ok(())
    }

    pub fn add_text(&mut self, name: &str, text: &str) {
        self.0.insert(name.to_owned(), text.as_bytes().to_vec());
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes secrets from all files.
    pub fn scrub(&mut self, scrubber: &SecretScrubber) {
        for bytes in self.0.values_mut() {
            *bytes = scrubber.scrub(&String::from_utf8_lossy(bytes)).into_bytes();
        }
    }

    /// Writes the archive to a file that only its owner can read.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("creating {}", path.display()))?;
        let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for (name, bytes) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_size(u64::try_from(bytes.len())?);
            header.set_mode(0o600);
            tar.append_data(&mut header, format!("{DIRECTORY}/{name}"), bytes.as_slice())?;
        }
        tar.into_inner()?.finish()?;
        Ok(())
    }
}
