//! The store of downloaded packages, by content: `sha256/<hex>.tgz` for charts, `sha256/<hex>.package` for other formats.
//! Only charts and bundles are validated as archives, so a chart is never read from a file of another format. Files are complete,
//! because they are renamed into place.

mod catalogs;
mod garbage_collection;
mod trees;

use std::{
    collections::HashMap,
    fs::{File, Permissions},
    io::{BufReader, Seek as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use chandler_core::{digest::Digest, package_format::PackageFormat};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

pub use self::{garbage_collection::Retention, trees::StoredRevision};
use crate::{SourceError, archive};

/// A content-addressed store of packages.
#[derive(Clone, Debug)]
pub struct Store {
    packages: PathBuf,
    catalogs: PathBuf,
    sources: PathBuf,
    /// The number of [`StoredPackage`]s of each file.
    in_use: Arc<Mutex<HashMap<PathBuf, usize>>>,
}

/// A package in the store. It is not removed from the store before this is dropped.
#[derive(Debug)]
pub struct StoredPackage {
    pub digest: Digest,
    pub(crate) format: PackageFormat,
    path: PathBuf,
    in_use: Arc<Mutex<HashMap<PathBuf, usize>>>,
}

impl StoredPackage {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn format(&self) -> &PackageFormat {
        &self.format
    }
}

impl Drop for StoredPackage {
    fn drop(&mut self) {
        let mut in_use = lock(&self.in_use);
        if let Some(count) = in_use.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&self.path);
            }
        }
    }
}

impl Store {
    /// Opens the store in `directory`, and creates it if it does not exist.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, SourceError> {
        let directory = directory.into();
        let [packages, catalogs, sources] =
            ["sha256", "catalogs", "sources"].map(|name| directory.join(name));
        for directory in [&packages, &catalogs, &sources] {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        Ok(Self { packages, catalogs, sources, in_use: Arc::default() })
    }

    /// Returns the package with this digest and format, if it is in the store, and updates its time of last use.
    pub fn get(&self, digest: &Digest, format: &PackageFormat) -> Option<StoredPackage> {
        let mut in_use = lock(&self.in_use);
        let path = self.path(digest, format);
        let file = File::open(&path).ok()?;
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, "cannot update the time of last use");
        }
        *in_use.entry(path.clone()).or_default() += 1;
        drop(in_use);
        Some(StoredPackage {
            digest: digest.clone(),
            format: format.clone(),
            path,
            in_use: self.in_use.clone(),
        })
    }

    /// Creates a writer for a new package.
    pub fn create(&self) -> Result<PackageWriter, SourceError> {
        // A package tool that runs as another user reads it.
        let file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(&self.packages)
            .map_err(failed)?;
        Ok(PackageWriter { store: self.clone(), file, hash: Sha256::new(), size: 0 })
    }

    /// Creates an unnamed file, which is deleted when it is closed.
    pub fn temp_file(&self) -> Result<File, SourceError> {
        tempfile::tempfile_in(&self.packages).map_err(failed)
    }

    fn path(&self, digest: &Digest, format: &PackageFormat) -> PathBuf {
        let extension = if format.is_helm_chart() { "tgz" } else { "package" };
        self.packages.join(format!("{}.{extension}", digest.hex()))
    }
}

/// Writes a package to a temporary file.
pub struct PackageWriter {
    store: Store,
    file: NamedTempFile,
    hash: Sha256,
    size: u64,
}

impl PackageWriter {
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), SourceError> {
        self.size += chunk.len() as u64;
        self.hash.update(chunk);
        self.file.write_all(chunk).map_err(failed)
    }

    /// Moves the package into the store if it has the expected digest. A chart or a bundle must also be a valid archive;
    /// packages of other formats are validated by their tool.
    pub async fn commit(
        self,
        url: &str,
        expected: Option<&Digest>,
        format: &PackageFormat,
    ) -> Result<Digest, SourceError> {
        let (url, expected, format) = (url.to_owned(), expected.cloned(), format.clone());
        let commit = move || self.commit_here(&url, expected.as_ref(), &format);
        tokio::task::spawn_blocking(commit).await.map_err(failed)?
    }

    /// Does the same as [`PackageWriter::commit`] in the current thread, which must not be one of the async runtime.
    pub fn commit_here(
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
        if format.is_archive() {
            file.rewind().map_err(failed)?;
            archive::validate(BufReader::new(file.as_file()), size).map_err(|error| {
                SourceError::InvalidArchive { url: url.to_owned(), reason: error.to_string() }
            })?;
        }
        file.persist(store.path(&digest, format)).map_err(failed)?;
        Ok(digest)
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
    async fn only_valid_archives_with_the_expected_digest_are_stored() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (package, other) = (chart("web"), chart("other"));
        let digest = Digest::of(&package);
        let (chart_format, other_format) = (PackageFormat::default(), PackageFormat::new("text/yaml"));
        let write = |content: &[u8]| {
            let mut writer = store.create().unwrap();
            writer.write(content).unwrap();
            writer
        };
        let replaced = write(&other).commit("url", Some(&digest), &chart_format).await.unwrap_err();
        assert!(matches!(replaced, SourceError::DigestMismatch { .. }), "{replaced}");
        for format in [&chart_format, &PackageFormat::manifests()] {
            let invalid = write(b"no archive").commit("url", None, format).await.unwrap_err();
            assert!(matches!(invalid, SourceError::InvalidArchive { .. }), "{invalid}");
        }
        drop(write(&package));
        assert!(store.get(&digest, &chart_format).is_none(), "an aborted download is not stored");
        assert_eq!(write(&package).commit("url", Some(&digest), &chart_format).await.unwrap(), digest);
        assert_eq!(std::fs::read(store.get(&digest, &chart_format).unwrap().path()).unwrap(), package);
        let text = write(b"no archive").commit("url", None, &other_format).await.unwrap();
        assert!(store.get(&text, &other_format).is_some());
        assert!(
            store.get(&text, &chart_format).is_none(),
            "a chart is not read from a file that was not validated"
        );
        std::fs::remove_file(store.path(&text, &other_format)).unwrap();
        assert_eq!(std::fs::read_dir(directory.path().join("sha256")).unwrap().count(), 1);
    }
}
