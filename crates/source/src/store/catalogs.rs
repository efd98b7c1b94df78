//! Catalogs on disk: `catalogs/<hash of the key>`, renamed into place.

use std::{
    fs::File,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use chandler_core::digest::Digest;
use tempfile::NamedTempFile;

use super::{Store, failed};
use crate::SourceError;

impl Store {
    /// The kept file, if there is one. It counts as used now.
    pub(crate) fn open_catalog(&self, key: &str) -> Option<File> {
        let file = File::open(self.catalog_path(key)).ok()?;
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, "the time of last use is not noted");
        }
        Some(file)
    }

    pub(crate) fn begin_catalog(&self) -> Result<NamedTempFile, SourceError> {
        NamedTempFile::new_in(&self.catalogs).map_err(failed)
    }

    pub(crate) fn keep_catalog(&self, key: &str, file: NamedTempFile) -> Result<File, SourceError> {
        file.persist(self.catalog_path(key)).map_err(failed)
    }

    pub(crate) fn forget_catalog(&self, key: &str) {
        // One that is not there is forgotten already.
        let _ = std::fs::remove_file(self.catalog_path(key));
    }

    /// Removes what was not used for so long: nobody has such a catalog any more. Returns how many went.
    pub(crate) fn collect_catalogs(&self, age: Duration, now: SystemTime) -> std::io::Result<usize> {
        let is_old = |file: &std::fs::DirEntry| {
            let used = file.metadata().and_then(|metadata| metadata.modified());
            used.is_ok_and(|used| now.duration_since(used).is_ok_and(|unused| unused > age))
        };
        let old = std::fs::read_dir(&self.catalogs)?.flatten().filter(is_old);
        Ok(old.filter(|file| std::fs::remove_file(file.path()).is_ok()).count())
    }

    fn catalog_path(&self, key: &str) -> PathBuf {
        self.catalogs.join(Digest::of(key).hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_uses_goes() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for key in ["used", "unused", "forgotten"] {
            store.keep_catalog(key, store.begin_catalog().unwrap()).unwrap();
        }
        store.forget_catalog("forgotten");
        let later = SystemTime::now() + Duration::from_hours(30);
        let used = store.open_catalog("used").unwrap();
        File::options()
            .write(true)
            .open(store.catalog_path("used"))
            .unwrap()
            .set_modified(later - Duration::from_hours(1))
            .unwrap();
        assert_eq!(store.collect_catalogs(Duration::from_hours(24), later).unwrap(), 1);
        drop(used);
        let left = ["used", "unused", "forgotten"].map(|key| store.open_catalog(key).is_some());
        assert_eq!(left, [true, false, false]);
    }
}
