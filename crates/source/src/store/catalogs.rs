//! The catalogs in the store: `catalogs/<hash of the key>`. Files are renamed into place.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use chandler_core::digest::Digest;
use tempfile::NamedTempFile;

use super::{Store, failed};
use crate::SourceError;

impl Store {
    /// Opens the file of a catalog, if it exists, and updates its time of last use.
    pub(crate) fn open_catalog(&self, key: &str) -> Option<File> {
        let file = File::open(self.catalog_path(key)).ok()?;
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, "cannot update the time of last use");
        }
        Some(file)
    }

    pub(crate) fn create_catalog(&self) -> Result<NamedTempFile, SourceError> {
        NamedTempFile::new_in(&self.catalogs).map_err(failed)
    }

    /// Moves the file of a catalog of a namespace into place.
    pub(crate) fn persist_catalog(
        &self,
        key: &str,
        namespace: &str,
        file: NamedTempFile,
    ) -> Result<File, SourceError> {
        let bytes = file.as_file().metadata().map_err(failed)?.len();
        let write = |path: &Path| file.persist(path).map_err(failed);
        self.write_accounted(self.catalog_path(key), namespace, bytes, write)
    }

    pub(crate) fn remove_catalog(&self, key: &str) {
        self.remove_accounted(&self.catalog_path(key));
    }

    /// Removes catalogs that were not used for `age`. Returns their number.
    pub(crate) fn remove_unused_catalogs(&self, age: Duration, now: SystemTime) -> std::io::Result<usize> {
        let is_old = |file: &std::fs::DirEntry| {
            let used = file.metadata().and_then(|metadata| metadata.modified());
            used.is_ok_and(|used| now.duration_since(used).is_ok_and(|unused| unused > age))
        };
        let old = std::fs::read_dir(&self.catalogs)?.flatten().filter(is_old);
        Ok(old.filter(|file| self.remove_accounted(&file.path())).count())
    }

    fn catalog_path(&self, key: &str) -> PathBuf {
        self.catalogs.join(Digest::of(key).hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_catalogs_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        for key in ["used", "unused", "removed"] {
            store.persist_catalog(key, "team", store.create_catalog().unwrap()).unwrap();
        }
        store.remove_catalog("removed");
        let later = SystemTime::now() + Duration::from_hours(30);
        let used = store.open_catalog("used").unwrap();
        File::options()
            .write(true)
            .open(store.catalog_path("used"))
            .unwrap()
            .set_modified(later - Duration::from_hours(1))
            .unwrap();
        assert_eq!(store.remove_unused_catalogs(Duration::from_hours(24), later).unwrap(), 1);
        drop(used);
        let exists = ["used", "unused", "removed"].map(|key| store.open_catalog(key).is_some());
        assert_eq!(exists, [true, false, false]);
    }
}
