//! Removes packages that exceed the retention: those that were not used for too long, then the least recently used.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::Store;

/// Packages that were used more recently are never removed: another process may be about to open them.
const MIN_AGE: Duration = Duration::from_mins(10);

/// How many bytes of packages are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub bytes: u64,
    /// Maximum time since the last use.
    pub age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 2 << 30, age: Duration::from_hours(7 * 24) }
    }
}

struct StoredFile {
    path: PathBuf,
    bytes: u64,
    age: Duration,
}

impl Store {
    /// Removes packages that exceed the retention at `now`. Returns their number.
    pub(crate) fn remove_unused(&self, retention: Retention, now: SystemTime) -> std::io::Result<usize> {
        let entries = std::fs::read_dir(&self.packages)?.flatten();
        let mut files: Vec<StoredFile> = entries.filter_map(|entry| stored_file(entry.path(), now)).collect();
        files.sort_by_key(|file| file.age);
        let (mut kept_bytes, mut removed) = (0, 0);
        for file in files {
            let exceeds = file.age > retention.age || kept_bytes + file.bytes > retention.bytes;
            // It may have been used or stored again since it was listed.
            let is_unused =
                |path: &Path| stored_file(path.to_owned(), now).is_some_and(|again| again.age == file.age);
            if exceeds && file.age > MIN_AGE && self.remove_package(&file.path, is_unused) {
                removed += 1;
            } else {
                kept_bytes += file.bytes;
            }
        }
        Ok(removed)
    }
}

fn stored_file(path: PathBuf, now: SystemTime) -> Option<StoredFile> {
    let metadata = std::fs::symlink_metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    let age = now.duration_since(metadata.modified().ok()?).unwrap_or_default();
    Some(StoredFile { path, bytes: metadata.len(), age })
}

#[cfg(test)]
mod tests {
    use chandler_core::{digest::Digest, package_format::PackageFormat};

    use super::*;

    #[test]
    fn packages_that_exceed_the_retention_are_removed_unless_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let names = ["newest", "newer", "older", "used", "oldest"];
        let (digests, chart) = (names.map(Digest::of), PackageFormat::default());
        for digest in &digests {
            std::fs::write(store.path(digest, &chart), vec![0; 100]).unwrap();
        }
        let aborted = store.packages.join(".tmpX");
        std::fs::write(&aborted, "half a download").unwrap();
        let now = SystemTime::now();
        let used = store.get(&digests[3], &chart).unwrap();
        let hours = |hours| now - Duration::from_hours(hours);
        for (digest, age) in digests.iter().zip([1, 2, 3, 30, 40]) {
            let file = std::fs::File::options().write(true).open(store.path(digest, &chart)).unwrap();
            file.set_modified(hours(age)).unwrap();
        }
        std::fs::File::options().write(true).open(&aborted).unwrap().set_modified(hours(50)).unwrap();
        let exists = || digests.clone().map(|digest| store.path(&digest, &chart).exists());

        let retention = Retention { bytes: 250, age: Duration::from_hours(24) };
        assert_eq!(
            store.remove_unused(retention, now).unwrap(),
            3,
            "one above the size limit, one old, one aborted"
        );
        assert_eq!(exists(), [true, true, false, true, false]);
        drop(used);
        assert_eq!(store.remove_unused(retention, now).unwrap(), 1);
        assert_eq!(exists(), [true, true, false, false, false]);
        let nothing = Retention { bytes: 0, age: Duration::ZERO };
        assert_eq!(store.remove_unused(nothing, hours(1)).unwrap(), 1, "recently used packages are kept");
        assert_eq!(exists(), [true, false, false, false, false]);
    }
}
