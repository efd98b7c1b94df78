//! Removes what has not been used for long, and the least recently used of what is too much.

use std::{
    fs::DirEntry,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use super::{Store, lock};

/// What was used this recently stays, however much there is: another process may be about to open it.
const JUST_USED: Duration = Duration::from_mins(10);

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub bytes: u64,
    /// Since the last use.
    pub age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 2 << 30, age: Duration::from_hours(7 * 24) }
    }
}

struct Found {
    path: PathBuf,
    bytes: u64,
    age: Duration,
}

impl Store {
    /// Collects at `now`. Returns how many packages went.
    pub(crate) fn collect(&self, retention: Retention, now: SystemTime) -> std::io::Result<usize> {
        let entries = std::fs::read_dir(&self.folder)?.flatten();
        let mut found: Vec<Found> = entries.filter_map(|entry| look(&entry, now)).collect();
        found.sort_by_key(|one| one.age);
        let (mut kept, mut gone) = (0, 0);
        for one in found {
            let surplus = one.age > retention.age || kept + one.bytes > retention.bytes;
            if surplus && one.age > JUST_USED && self.remove(&one) {
                gone += 1;
            } else {
                kept += one.bytes;
            }
        }
        Ok(gone)
    }

    /// Nobody can begin to hold it while it goes.
    fn remove(&self, one: &Found) -> bool {
        let held = lock(&self.held);
        !held.contains_key(&one.path) && std::fs::remove_file(&one.path).is_ok()
    }
}

fn look(entry: &DirEntry, now: SystemTime) -> Option<Found> {
    let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let age = now.duration_since(metadata.modified().ok()?).unwrap_or_default();
    Some(Found { path: entry.path(), bytes: metadata.len(), age })
}

#[cfg(test)]
mod tests {
    use chandler_core::{digest::Digest, package_format::PackageFormat};

    use super::*;

    #[test]
    fn the_old_and_the_surplus_go_and_what_is_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let names = ["newest", "newer", "older", "held", "oldest"];
        let (digests, chart) = (names.map(Digest::of), PackageFormat::default());
        for digest in &digests {
            std::fs::write(store.path(digest, &chart), vec![0; 100]).unwrap();
        }
        let abandoned = store.folder.join(".tmpX");
        std::fs::write(&abandoned, "half a download").unwrap();
        let now = SystemTime::now();
        let held = store.get(&digests[3], &chart).unwrap();
        let hours = |hours| now - Duration::from_hours(hours);
        for (digest, age) in digests.iter().zip([1, 2, 3, 30, 40]) {
            let file = std::fs::File::options().write(true).open(store.path(digest, &chart)).unwrap();
            file.set_modified(hours(age)).unwrap();
        }
        std::fs::File::options().write(true).open(&abandoned).unwrap().set_modified(hours(50)).unwrap();
        let left = || digests.clone().map(|digest| store.path(&digest, &chart).exists());

        let retention = Retention { bytes: 250, age: Duration::from_hours(24) };
        assert_eq!(store.collect(retention, now).unwrap(), 3, "one surplus, one old, one abandoned");
        assert_eq!(left(), [true, true, false, true, false]);
        drop(held);
        assert_eq!(store.collect(retention, now).unwrap(), 1);
        assert_eq!(left(), [true, true, false, false, false]);
        let nothing = Retention { bytes: 0, age: Duration::ZERO };
        assert_eq!(store.collect(nothing, hours(1)).unwrap(), 1, "what was just used stays");
        assert_eq!(left(), [true, false, false, false, false]);
    }
}
