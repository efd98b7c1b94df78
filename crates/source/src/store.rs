//! Packages on disk, by content: `sha256/<hex>.tgz`. A file that is there is whole, because it is renamed into place.

use std::{io::Write as _, path::PathBuf};

use chandler_core::digest::Digest;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::SourceError;

/// A content-addressed store.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the store in `folder`; makes it if it is absent.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, SourceError> {
        let folder = folder.into().join("sha256");
        std::fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Self { folder })
    }

    /// The file with this content, if it is there.
    pub fn get(&self, digest: &Digest) -> Option<PathBuf> {
        Some(self.path(digest)).filter(|path| path.is_file())
    }

    /// Starts a new file.
    pub fn begin(&self) -> Result<Incoming, SourceError> {
        let file = NamedTempFile::new_in(&self.folder).map_err(failed)?;
        Ok(Incoming { store: self.clone(), file, hash: Sha256::new(), size: 0 })
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.tgz", digest.hex()))
    }
}

/// A file that is being written.
pub struct Incoming {
    store: Store,
    file: NamedTempFile,
    hash: Sha256,
    size: usize,
}

impl Incoming {
    /// Appends, up to `limit` bytes in all. False: over the limit.
    pub fn write(&mut self, chunk: &[u8], limit: usize) -> Result<bool, SourceError> {
        self.size += chunk.len();
        if self.size > limit {
            return Ok(false);
        }
        self.hash.update(chunk);
        self.file.write_all(chunk).map_err(failed)?;
        Ok(true)
    }

    /// Keeps the file under its digest. With `expected`, only if that is its digest; else the actual one is returned.
    pub fn keep(self, expected: Option<&Digest>) -> Result<Result<Digest, Digest>, SourceError> {
        let digest = Digest::from_sha256(&self.hash.finalize().into());
        if expected.is_some_and(|expected| *expected != digest) {
            return Ok(Err(digest));
        }
        self.file.persist(self.store.path(&digest)).map_err(failed)?;
        Ok(Ok(digest))
    }
}

fn failed(error: impl std::fmt::Display) -> SourceError {
    SourceError::Store(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_files_with_the_right_content_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let digest = Digest::of("package");
        let write = |text: &str| {
            let mut incoming = store.begin().unwrap();
            assert!(incoming.write(text.as_bytes(), 100).unwrap());
            incoming
        };
        assert_eq!(write("other").keep(Some(&digest)).unwrap(), Err(Digest::of("other")));
        assert_eq!(store.get(&digest), None);
        drop(write("package"));
        assert_eq!(store.get(&digest), None, "an abandoned download leaves nothing");
        assert_eq!(write("package").keep(Some(&digest)).unwrap(), Ok(digest.clone()));
        assert_eq!(std::fs::read(store.get(&digest).unwrap()).unwrap(), b"package");
        assert!(!store.begin().unwrap().write(b"too long", 3).unwrap());
        assert_eq!(std::fs::read_dir(folder.path().join("sha256")).unwrap().count(), 1);
    }
}
