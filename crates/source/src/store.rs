//! The store of downloaded packages, by content: `sha256/<hex>.tgz` for charts, `sha256/<hex>.package` for other formats.
//! What is written is accounted per namespace, and a package is handed out only to those who have proved that they can read it.
//! Only charts and bundles are validated as archives, so a chart is never read from a file of another format. Files are complete,
//! because they are renamed into place.

mod accounting;
mod catalogs;
mod garbage_collection;
mod ledger;
mod left_overs;
mod proofs;
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

use self::ledger::{Ledger, LedgerFile};
pub(crate) use self::{accounting::Reservation, proofs::Claim};
pub use self::{garbage_collection::Retention, trees::StoredRevision};
use crate::{FilesOwner, SourceError, archive};

/// A content-addressed store of packages.
#[derive(Clone, Debug)]
pub struct Store {
    packages: PathBuf,
    catalogs: PathBuf,
    sources: PathBuf,
    proofs: PathBuf,
    /// Locked before `in_use`, if both are.
    ledger: Arc<Mutex<Ledger>>,
    /// The number of [`StoredPackage`]s of each file.
    in_use: Arc<Mutex<HashMap<PathBuf, usize>>>,
    /// Shows other processes that the store is used.
    _lock: Arc<File>,
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
    /// Opens the store in `directory`, and creates it if it does not exist. Removes what processes that were killed have left over.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, SourceError> {
        let directory = directory.into();
        let [packages, catalogs, sources, proofs] =
            ["sha256", "catalogs", "sources", "proofs"].map(|name| directory.join(name));
        for folder in [&packages, &catalogs, &sources, &proofs] {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let folders = [&*packages, &*catalogs, &*sources, &*proofs];
        let lock = left_overs::remove(&directory, &folders).map_err(failed)?;
        let (ledger, in_use) = (Arc::default(), Arc::default());
        let store = Self { packages, catalogs, sources, proofs, ledger, in_use, _lock: Arc::new(lock) };
        store.read_ledger().map_err(failed)?;
        Ok(store)
    }

    /// Accounts what is in the store, and removes the proofs of packages that are not.
    fn read_ledger(&self) -> std::io::Result<()> {
        let mut ledger = lock(&self.ledger);
        for (path, bytes, last_use) in files_in(&self.packages)? {
            let (namespace, proofs) = self.read_proofs(&path);
            ledger.insert(path, LedgerFile { namespace, bytes, last_use, proofs: Some(proofs) });
        }
        for (path, bytes, last_use) in files_in(&self.sources)? {
            let namespace = trees::namespace_of(&path).unwrap_or_default();
            ledger.insert(path, LedgerFile { namespace, bytes, last_use, proofs: None });
        }
        for (path, bytes, last_use) in files_in(&self.catalogs)? {
            // Its owner is known as soon as the catalog is read again.
            ledger.insert(path, LedgerFile { namespace: String::new(), bytes, last_use, proofs: None });
        }
        for (path, ..) in files_in(&self.proofs)? {
            let package = self.packages.join(path.file_name().unwrap_or_default());
            if ledger.get(&package).is_none() {
                // It is tried again at the next start.
                let _ = std::fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Returns the package with this digest and format, if it is in the store, and updates its time of last use.
    pub fn get(&self, digest: &Digest, format: &PackageFormat) -> Option<StoredPackage> {
        let path = self.path(digest, format);
        if let Some(file) = lock(&self.ledger).get_mut(&path) {
            file.last_use = SystemTime::now();
        }
        let mut in_use = lock(&self.in_use);
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

    /// Returns the package with this digest and format, if it is in the store and the namespace or the login has proved that it
    /// can read it.
    pub(crate) fn get_proven(
        &self,
        digest: &Digest,
        format: &PackageFormat,
        claim: &Claim,
    ) -> Option<StoredPackage> {
        self.is_proven(&self.path(digest, format), claim).then(|| self.get(digest, format)).flatten()
    }

    /// Creates a writer for a new package of a source.
    pub fn create_for(&self, owner: FilesOwner<'_>) -> Result<PackageWriter, SourceError> {
        self.create(owner.claim())
    }

    /// Creates a writer for a new package, which proves that the claim is right.
    pub(crate) fn create(&self, claim: Claim) -> Result<PackageWriter, SourceError> {
        // A package tool that runs as another user reads it.
        let file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(&self.packages)
            .map_err(failed)?;
        let reservation = self.reservation(&claim.namespace);
        Ok(PackageWriter { store: self.clone(), file, hash: Sha256::new(), size: 0, claim, reservation })
    }

    /// Moves a complete package into the store. Its owner is the namespace that was the first to store it.
    fn add(
        &self,
        file: NamedTempFile,
        path: PathBuf,
        claim: &Claim,
        reservation: Reservation,
    ) -> Result<(), SourceError> {
        let bytes = file.as_file().metadata().map_err(failed)?.len();
        // It needs the lock, too.
        drop(reservation);
        let mut ledger = lock(&self.ledger);
        let known = ledger.get(&path).cloned();
        let (namespace, proofs) =
            known.map_or_else(Default::default, |known| (known.namespace, known.proofs));
        let namespace = if namespace.is_empty() { claim.namespace.clone() } else { namespace };
        let proofs = Some(self.proofs_with(&path, &namespace, proofs, claim)?);
        file.persist(&path).map_err(failed)?;
        ledger.insert(path, LedgerFile { namespace, bytes, last_use: SystemTime::now(), proofs });
        Ok(())
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
    claim: Claim,
    reservation: Reservation,
}

impl PackageWriter {
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), SourceError> {
        self.reservation.grow(chunk.len() as u64)?;
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
        let Self { store, mut file, hash, size, claim, reservation } = self;
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
        store.add(file, store.path(&digest, format), &claim, reservation)?;
        Ok(digest)
    }
}

/// Returns the complete files of a folder: their paths, sizes and times of last use.
fn files_in(folder: &Path) -> std::io::Result<Vec<(PathBuf, u64, SystemTime)>> {
    let file = |entry: std::fs::DirEntry| {
        let is_complete = !left_overs::is_temporary(&entry);
        let metadata = entry.metadata().ok().filter(|metadata| metadata.is_file() && is_complete)?;
        Some((entry.path(), metadata.len(), metadata.modified().ok()?))
    };
    Ok(std::fs::read_dir(folder)?.flatten().filter_map(file).collect())
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
            let claim = Claim::new("team", "https://charts.example", None);
            let mut writer = store.create(claim).unwrap();
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
