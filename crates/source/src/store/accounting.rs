//! Accounts what is written to the store, per namespace, and removes packages to make room.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use chandler_core::quota::Quotas;

use super::{
    Store,
    ledger::{Ledger, LedgerFile},
    left_overs::remove_entry,
    lock,
};
use crate::{SourceError, quotas::STORE};

/// Space in the store for a file that is being written, or that has no name. It is released when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    store: Store,
    namespace: String,
    bytes: u64,
}

impl Reservation {
    /// Reserves space for `bytes` more. Fails if that would exceed a quota.
    pub fn grow(&mut self, bytes: u64) -> Result<(), SourceError> {
        let mut ledger = lock(&self.store.ledger);
        self.store.make_room(&mut ledger, &self.namespace, bytes)?;
        ledger.reserve(&self.namespace, bytes);
        self.bytes += bytes;
        Ok(())
    }

    /// Changes the space to that of a file that exists already.
    pub fn set(&mut self, bytes: u64) {
        let mut ledger = lock(&self.store.ledger);
        ledger.release(&self.namespace, self.bytes);
        ledger.reserve(&self.namespace, bytes);
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.store.ledger).release(&self.namespace, self.bytes);
    }
}

impl Store {
    /// Limits the bytes of all namespaces together, and of each of them.
    pub(crate) fn set_quotas(&self, quotas: Quotas) {
        lock(&self.ledger).quotas = quotas;
    }

    /// Returns the bytes that each namespace uses, and how often a quota was exceeded.
    pub(crate) fn usage(&self) -> (Vec<(String, u64)>, u64) {
        let ledger = lock(&self.ledger);
        let used = ledger.usage().iter().map(|(namespace, bytes)| (namespace.clone(), *bytes)).collect();
        (used, ledger.refusals)
    }

    /// Returns an empty reservation.
    pub(crate) fn reservation(&self, namespace: &str) -> Reservation {
        Reservation { store: self.clone(), namespace: namespace.to_owned(), bytes: 0 }
    }

    /// Accounts a file that is not a package and replaces an older one, and calls `write`.
    pub(super) fn write_accounted<T>(
        &self,
        path: PathBuf,
        namespace: &str,
        bytes: u64,
        write: impl FnOnce(&Path) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let mut ledger = lock(&self.ledger);
        let old = ledger.remove(&path);
        let written = self.make_room(&mut ledger, namespace, bytes).and_then(|()| write(&path));
        let namespace = namespace.to_owned();
        let new = LedgerFile { namespace, bytes, last_use: SystemTime::now(), proofs: None };
        let kept = if written.is_ok() { Some(new) } else { old };
        if let Some(file) = kept {
            ledger.insert(path, file);
        }
        written
    }

    /// Removes a file or a folder that is not a package, and no longer accounts it, unless that fails. Returns whether it was removed:
    /// it may not exist.
    pub(super) fn remove_accounted(&self, path: &Path) -> bool {
        let mut ledger = lock(&self.ledger);
        let result = remove_entry(path);
        if is_gone(&result) {
            ledger.remove(path);
        }
        result.is_ok()
    }

    /// Removes a package, unless it is in use, and then its proofs and its entry in the ledger. The locks prevent [`Store::get`] from
    /// returning it, and a download from storing it again meanwhile. Returns whether it was removed.
    pub(super) fn remove_package(&self, path: &Path, is_unused: impl FnOnce(&Path) -> bool) -> bool {
        let mut ledger = lock(&self.ledger);
        let in_use = lock(&self.in_use);
        if in_use.contains_key(path) || !is_unused(path) {
            return false;
        }
        self.remove_file(&mut ledger, path).is_ok()
    }

    /// Removes a package, its proofs and its entry in the ledger. If that fails, the package still counts.
    fn remove_file(&self, ledger: &mut Ledger, path: &Path) -> io::Result<()> {
        let result = std::fs::remove_file(path);
        if is_gone(&result) {
            self.remove_proofs(path);
            ledger.remove(path);
        }
        result
    }

    /// Removes packages until a namespace can use `bytes` more.
    pub(super) fn make_room(
        &self,
        ledger: &mut Ledger,
        namespace: &str,
        bytes: u64,
    ) -> Result<(), SourceError> {
        let in_use = lock(&self.in_use);
        let room = ledger.room_for(namespace, bytes, |path| in_use.contains_key(path), SystemTime::now());
        let removed = room.map_err(|exceeded| {
            ledger.refusals += 1;
            STORE.refused(exceeded, ledger.quotas, namespace, bytes)
        })?;
        for path in removed {
            tracing::info!(namespace, path = %path.display(), "removed a package from the store to make room");
            let _ = self.remove_file(ledger, &path);
        }
        Ok(())
    }
}

/// Returns whether a file does not exist after it was removed.
fn is_gone(removed: &io::Result<()>) -> bool {
    removed.as_ref().err().is_none_or(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use chandler_core::{digest::Digest, package_format::PackageFormat};

    use super::*;
    use crate::{archive::testing::chart, store::Claim};

    /// Stores a chart of a namespace.
    fn add(store: &Store, namespace: &str, name: &str) -> Result<Digest, SourceError> {
        let mut writer = store.create(Claim::new(namespace, "https://charts.example", None))?;
        writer.write(&chart(name))?;
        writer.commit_here(name, None, &PackageFormat::default())
    }

    fn age(store: &Store) {
        let mut ledger = lock(&store.ledger);
        let paths: Vec<_> =
            std::fs::read_dir(&store.packages).unwrap().map(|one| one.unwrap().path()).collect();
        for path in paths {
            let file = ledger.get_mut(&path).unwrap();
            file.last_use -= std::time::Duration::from_mins(5);
        }
    }

    #[test]
    fn a_namespace_at_its_quota_replaces_its_own_unused_packages_only() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let size = chart("a").len() as u64;
        store.set_quotas(Quotas { total: 10 * size, per_namespace: 2 * size + size / 2 });
        let format = PackageFormat::default();
        let (other, first) = (add(&store, "other", "o").unwrap(), add(&store, "team", "a").unwrap());
        let second = add(&store, "team", "b").unwrap();
        let full = add(&store, "team", "c").unwrap_err();
        let SourceError::QuotaExceeded { namespace, quota, .. } = &full else { panic!("{full}") };
        assert_eq!((&**namespace, *quota), ("team", 2 * size + size / 2));
        assert!(full.to_string().contains("--store-quota-per-namespace"), "{full}");
        add(&store, "other", "p").expect("others go on");

        age(&store);
        let used = store.get(&first, &format).unwrap();
        let third = add(&store, "team", "c").unwrap();
        let exists = [&first, &second, &third, &other].map(|digest| store.get(digest, &format).is_some());
        assert_eq!(exists, [true, false, true, true], "the one that is not in use was removed");
        drop(used);

        let again = Store::open(directory.path()).unwrap();
        let stored = |names: &[&str]| names.iter().map(|name| chart(name).len() as u64).sum::<u64>();
        let expected = [("other".to_owned(), stored(&["o", "p"])), ("team".to_owned(), stored(&["a", "c"]))];
        assert_eq!(again.usage().0, expected, "it is known after a restart");
    }

    #[test]
    fn two_namespaces_that_fill_the_store_keep_a_small_one_from_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (size, format) = (chart("a").len() as u64, PackageFormat::default());
        store.set_quotas(Quotas { total: 10 * size, per_namespace: 5 * size });
        let old = add(&store, "small", "a").unwrap();
        age(&store);
        let (mut first, mut second) = (store.reservation("first"), store.reservation("second"));
        first.grow(5 * size).unwrap();
        second.grow(4 * size).unwrap();
        let refused = second.grow(size / 2).unwrap_err();
        assert!(matches!(refused, SourceError::SharedQuotaExceeded { .. }), "{refused}");
        let new = add(&store, "small", "b").expect("the reserve is for it");
        let exists = [&old, &new].map(|digest| store.get(digest, &format).is_some());
        assert_eq!(exists, [true, true], "it loses nothing to namespaces that use more");
    }

    #[test]
    fn what_is_removed_no_longer_counts_and_what_is_in_use_or_cannot_be_removed_does() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let digest = add(&store, "team", "a").unwrap();
        let format = PackageFormat::default();
        let (path, counted) = (store.path(&digest, &format), || !store.usage().0.is_empty());
        let claim = Claim::new("team", "https://charts.example", None);
        let used = store.get(&digest, &format).unwrap();
        assert!(!store.remove_package(&path, |_| true) && counted(), "it is in use");
        drop(used);
        assert!(!store.remove_package(&path, |_| false) && counted(), "it was stored again");
        assert!(store.get_proven(&digest, &format, &claim).is_some());

        let content = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(!store.remove_package(&path, |_| true) && counted(), "it cannot be removed");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, content).unwrap();

        assert!(store.remove_package(&path, |_| true) && !counted());
        assert_eq!(std::fs::read_dir(&store.proofs).unwrap().count(), 0);
        add(&store, "team", "a").unwrap();
        assert!(counted() && store.get_proven(&digest, &format, &claim).is_some(), "it is stored again");
    }

    #[test]
    fn what_is_being_written_counts_and_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.set_quotas(Quotas { total: 100, per_namespace: 60 });
        let mut team = store.reservation("team");
        team.grow(60).unwrap();
        assert!(matches!(team.grow(1), Err(SourceError::QuotaExceeded { used: 60, added: 1, .. })));
        let mut other = store.reservation("other");
        let more_than_half = other.grow(51);
        assert!(matches!(more_than_half, Err(SourceError::SharedQuotaExceeded { limit: 100, .. })));
        other.grow(40).unwrap();
        team.set(10);
        other.grow(20).unwrap();
        drop((team, other));
        assert_eq!(store.usage(), (Vec::new(), 2));
    }
}
