//! Packages on disk, by content: `sha256/<hex>.tgz`. A file that is there is whole, because it is renamed into place.

mod catalogs;
mod collect;

use std::{
    collections::HashMap,
    fs::File,
    io::{BufReader, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use chandler_core::digest::Digest;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

pub use self::collect::Retention;
use crate::{SourceError, archive};

/// A content-addressed store.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    catalogs: PathBuf,
    /// How many hold each package.
    held: Arc<Mutex<HashMap<Digest, usize>>>,
}

/// A package in the store. It stays there while this lives.
#[derive(Debug)]
pub struct StoredPackage {
    pub digest: Digest,
    path: PathBuf,
    held: Arc<Mutex<HashMap<Digest, usize>>>,
}

impl StoredPackage {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StoredPackage {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.digest);
            }
        }
    }
}

impl Store {
    /// Opens the store in `folder`; makes it if it is absent.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, SourceError> {
        let home = folder.into();
        let (folder, catalogs) = (home.join("sha256"), home.join("catalogs"));
        for folder in [&folder, &catalogs] {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        Ok(Self { folder, catalogs, held: Arc::default() })
    }

    /// The package with this content, if it is there. It counts as used now.
    pub fn get(&self, digest: &Digest) -> Option<StoredPackage> {
        let mut held = lock(&self.held);
        let path = self.path(digest);
        let file = File::open(&path).ok()?;
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, "the time of last use is not noted");
        }
        *held.entry(digest.clone()).or_default() += 1;
        drop(held);
        Some(StoredPackage { digest: digest.clone(), path, held: self.held.clone() })
    }

    /// Starts a new file.
    pub fn begin(&self) -> Result<Incoming, SourceError> {
        let file = NamedTempFile::new_in(&self.folder).map_err(failed)?;
        Ok(Incoming { store: self.clone(), file, hash: Sha256::new(), size: 0 })
    }

    /// A file without a name, gone when it is closed.
    pub fn scratch(&self) -> Result<File, SourceError> {
        tempfile::tempfile_in(&self.folder).map_err(failed)
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
    size: u64,
}

impl Incoming {
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), SourceError> {
        self.size += chunk.len() as u64;
        self.hash.update(chunk);
        self.file.write_all(chunk).map_err(failed)
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Keeps the archive under its digest, if that is the expected one and the archive is fit to be opened.
    pub async fn keep(self, url: &str, expected: Option<&Digest>) -> Result<Digest, SourceError> {
        let Self { store, mut file, hash, size } = self;
        let digest = Digest::from_sha256(&hash.finalize().into());
        if let Some(expected) = expected.filter(|expected| **expected != digest) {
            return Err(SourceError::DigestMismatch {
                url: url.to_owned(),
                expected: expected.to_string(),
                actual: digest.to_string(),
            });
        }
        let url = url.to_owned();
        let keep = move || {
            file.rewind().map_err(failed)?;
            archive::check(BufReader::new(file.as_file()), size)
                .map_err(|error| SourceError::BadArchive { url, reason: error.to_string() })?;
            file.persist(store.path(&digest)).map_err(failed)?;
            Ok(digest)
        };
        tokio::task::spawn_blocking(keep).await.map_err(failed)?
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: impl std::fmt::Display) -> SourceError {
    SourceError::Store(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::testing::chart;

    #[tokio::test]
    async fn only_whole_archives_with_the_right_content_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (package, other) = (chart("web"), chart("other"));
        let digest = Digest::of(&package);
        let write = |content: &[u8]| {
            let mut incoming = store.begin().unwrap();
            incoming.write(content).unwrap();
            incoming
        };
        let exchanged = write(&other).keep("url", Some(&digest)).await.unwrap_err();
        assert!(matches!(exchanged, SourceError::DigestMismatch { .. }), "{exchanged}");
        let damaged = write(b"no archive").keep("url", None).await.unwrap_err();
        assert!(matches!(damaged, SourceError::BadArchive { .. }), "{damaged}");
        drop(write(&package));
        assert!(store.get(&digest).is_none(), "an abandoned download leaves nothing");
        assert_eq!(write(&package).keep("url", Some(&digest)).await.unwrap(), digest);
        assert_eq!(std::fs::read(store.get(&digest).unwrap().path()).unwrap(), package);
        assert_eq!(std::fs::read_dir(folder.path().join("sha256")).unwrap().count(), 1);
    }
}
