//! Files that become one compressed archive.

use std::{collections::BTreeMap, fs::OpenOptions, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;

use super::withheld::Withheld;

/// The folder that everything is in.
const FOLDER: &str = "chandler-support";

#[derive(Default)]
pub struct Archive(BTreeMap<String, Vec<u8>>);

impl Archive {
    pub fn json(&mut self, name: &str, value: &impl Serialize) -> Result<()> {
        self.0.insert(name.to_owned(), serde_json::to_vec_pretty(value)?);
        Ok(())
    }

    pub fn text(&mut self, name: &str, text: &str) {
        self.0.insert(name.to_owned(), text.as_bytes().to_vec());
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes secrets out of all files.
    pub fn clean(&mut self, withheld: &Withheld) {
        for bytes in self.0.values_mut() {
            *bytes = withheld.clean(&String::from_utf8_lossy(bytes)).into_bytes();
        }
    }

    /// Only its owner may read the file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for (name, bytes) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_size(u64::try_from(bytes.len())?);
            header.set_mode(0o600);
            tar.append_data(&mut header, format!("{FOLDER}/{name}"), bytes.as_slice())?;
        }
        tar.into_inner()?.finish()?;
        Ok(())
    }
}
