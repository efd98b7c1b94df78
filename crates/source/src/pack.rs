//! Packs the files of a folder as a package, so that equal files are equal packages.
//!
//! The digest of a package is part of the inputs of every release, so it must not depend on the time, the owner of a file or the
//! version of a library: entries are sorted and have no times, and the archive is stored without compression.

mod ignore;

use std::io;

use chandler_core::{
    digest::Digest, failure::root_cause, package_format::PackageFormat, source::is_manifest,
};
use flate2::Crc;
use tar::{Builder, EntryType, Header};

use self::ignore::IgnoreRules;
use crate::{SourceError, Store, StoredPackage, store::Claim};

/// The folder of a chart in its archive. Helm ignores its name.
const CHART_FOLDER: &str = "chart";
const CHART_METADATA: &str = "Chart.yaml";
const MODE: u32 = 0o644;
/// Largest block of a deflate stream that is stored without compression.
const STORED_BLOCK: usize = 65_535;

/// A package that is packed from files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedFiles {
    pub digest: Digest,
    pub format: PackageFormat,
    content: Vec<u8>,
}

impl PackedFiles {
    /// Packs a chart from its files, named by their paths in the chart. Leaves out what its `.helmignore` names, as Helm does.
    pub fn chart<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, SourceError> {
        let mut files: Vec<_> = files.into_iter().collect();
        if !files.iter().any(|(path, _)| *path == CHART_METADATA) {
            return Err(invalid(format!("the folder has no {CHART_METADATA}")));
        }
        let rules = IgnoreRules::of_chart(&files).map_err(invalid)?;
        files.retain(|(path, _)| !rules.ignores(path));
        let prefixed = files.into_iter().map(|(path, content)| (format!("{CHART_FOLDER}/{path}"), content));
        Self::pack(prefixed.collect(), PackageFormat::default())
    }

    /// Packs a bundle of format `manifests/v1` from those files that contain manifests.
    pub fn manifests<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, SourceError> {
        let files = files.into_iter().filter(|(path, _)| is_manifest(path));
        let files: Vec<_> = files.map(|(path, content)| (path.to_owned(), content)).collect();
        if files.is_empty() {
            return Err(invalid("the folder has no manifests".to_owned()));
        }
        Self::pack(files, PackageFormat::manifests())
    }

    fn pack(mut files: Vec<(String, &[u8])>, format: PackageFormat) -> Result<Self, SourceError> {
        files.sort_unstable();
        let content = archive(&files).map_err(|error| invalid(root_cause(&error)))?;
        let content = stored_gzip(&content);
        Ok(Self { digest: Digest::of(&content), format, content })
    }

    /// Returns the package from the store, and adds it first if needed. `origin` names the files in messages. Must not be called
    /// in an async task: it hashes and writes the whole package.
    pub(crate) fn store(
        self,
        store: &Store,
        claim: Claim,
        origin: &str,
    ) -> Result<StoredPackage, SourceError> {
        if let Some(stored) = store.get_proven(&self.digest, &self.format, &claim) {
            return Ok(stored);
        }
        let mut writer = store.create(claim)?;
        writer.write(&self.content)?;
        let digest = writer.commit_here(origin, Some(&self.digest), &self.format)?;
        store
            .get(&digest, &self.format)
            .ok_or_else(|| SourceError::Store(format!("{digest} disappeared from the store")))
    }
}

fn archive(files: &[(String, &[u8])]) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(MODE);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, *content)?;
    }
    builder.into_inner()
}

/// Returns a gzip stream whose content is stored without compression. Unlike the result of a compressor, it is the same for
/// every version of every library.
fn stored_gzip(content: &[u8]) -> Vec<u8> {
    // Magic number, deflate, no flags, no time, no extra flags, unknown operating system.
    let mut stream = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut blocks = content.chunks(STORED_BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    let mut checksum = Crc::new();
    checksum.update(content);
    stream.extend(checksum.sum().to_le_bytes());
    stream.extend(checksum.amount().to_le_bytes());
    stream
}

fn invalid(reason: String) -> SourceError {
    SourceError::NotPackable { reason }
}

#[cfg(test)]
mod tests;
