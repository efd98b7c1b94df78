//! Packages on disk, by content: `sha256/<hex>.tgz` for charts, `sha256/<hex>.package` for other formats. Only charts are
//! checked as archives, so no chart is ever read from a file of another format. Files are renamed into place, so an existing
//! file is complete.

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

use chandler_core::{digest::Digest, package_format::PackageFormat};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

pub use self::collect::Retention;
use crate::{SourceError, archive};

/// A content-addressed store.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    catalogs: PathBuf,
    /// How many `StoredPackage`s exist of each file.
    held: Arc<Mutex<HashMap<PathBuf, usize>>>,
}

/// A package in the store. It stays there while this lives.
#[derive(Debug)]
pub struct StoredPackage {
    pub digest: Digest,
    path: PathBuf,
    held: Arc<Mutex<HashMap<PathBuf, usize>>>,
}

impl StoredPackage {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StoredPackage {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.path);
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

    /// Returns the package with this content and format, if it is stored. It counts as used now.
    pub fn get(&self, digest: &Digest, format: &PackageFormat) -> Option<StoredPackage> {
        let mut held = lock(&self.held);
        let path = self.path(digest, format);
        let file = File::open(&path).ok()?;
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, "the time of last use is not noted");
        }
        *held.entry(path.clone()).or_default() += 1;
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

    fn path(&self, digest: &Digest, format: &PackageFormat) -> PathBuf {
        let extension = if format.is_helm_chart() { "tgz" } else { "package" };
        self.folder.join(format!("{}.{extension}", digest.hex()))
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

    /// Stores the package under its digest, if that is the expected one. A chart must also be an archive that is safe to
    /// open; packages of other formats are checked by their tool.
    pub async fn keep(
        self,
        url: &str,
        expected: Option<&Digest>,
        format: &PackageFormat,
    ) -> Result<Digest, SourceError> {
        let Self { store, mut file, hash, size } = self;
        let digest = Digest::from_sha256(&hash.finalize().into());
        if let Some(expected) = expected.filter(|expected| **expected != digest) {
            return Err(SourceError::DigestMismatch {
                url: url.to_owned(),
                expected: expected.to_string(),
                actual: digest.to_string(),
            });
        }
        let (url, format) = (url.to_owned(), format.clone());
        let keep = move || {
            if format.is_helm_chart() {
                file.rewind().map_err(failed)?;
                archive::check(BufReader::new(file.as_file()), size)
                    .map_err(|error| SourceError::BadArchive { url, reason: error.to_string() })?;
            }
            file.persist(store.path(&digest, &format)).map_err(failed)?;
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
        let (chart_format, other_format) = (PackageFormat::default(), PackageFormat::new("text/yaml"));
        let write = |content: &[u8]| {
            let mut incoming = store.begin().unwrap();
            incoming.write(content).unwrap();
            incoming
        };
        let exchanged = write(&other).keep("url", Some(&digest), &chart_format).await.unwrap_err();
        assert!(matches!(exchanged, SourceError::DigestMismatch { .. }), "{exchanged}");
        let damaged = write(b"no archive").keep("url", None, &chart_format).await.unwrap_err();
        assert!(matches!(damaged, SourceError::BadArchive { .. }), "{damaged}");
        drop(write(&package));
        assert!(store.get(&digest, &chart_format).is_none(), "an abandoned download leaves nothing");
        assert_eq!(write(&package).keep("url", Some(&digest), &chart_format).await.unwrap(), digest);
        assert_eq!(std::fs::read(store.get(&digest, &chart_format).unwrap().path()).unwrap(), package);
        let text = write(b"no archive").keep("url", None, &other_format).await.unwrap();
        assert!(store.get(&text, &other_format).is_some());
        assert!(
            store.get(&text, &chart_format).is_none(),
            "a chart is never read from a file that was not checked"
        );
        std::fs::remove_file(store.path(&text, &other_format)).unwrap();
        assert_eq!(std::fs::read_dir(folder.path().join("sha256")).unwrap().count(), 1);
    }
}
