//! Since when the records of pending revisions are unchanged.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use crate::identity::ReleaseId;

/// The version of a record, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub resource_version: String,
    pub at: Timestamp,
}

/// The records of pending revisions, and since when each is unchanged as far as it was watched. It outlives an interrupted
/// watch: a record that has the same version afterwards did not change meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingRecords(HashMap<ReleaseId, BTreeMap<u32, Sighting>>);

impl PendingRecords {
    pub(super) fn get(&self, release: &ReleaseId, revision: u32) -> Option<&Sighting> {
        self.0.get(release)?.get(&revision)
    }

    /// Adds a sighting, unless the record was seen in this version before.
    pub(super) fn insert(&mut self, release: &ReleaseId, revision: u32, sighting: Sighting) {
        let known = self.get(release, revision);
        if known.is_none_or(|known| known.resource_version != sighting.resource_version) {
            self.0.entry(release.clone()).or_default().insert(revision, sighting);
        }
    }

    pub(super) fn remove(&mut self, release: &ReleaseId, revision: u32) {
        if let Some(revisions) = self.0.get_mut(release) {
            revisions.remove(&revision);
            if revisions.is_empty() {
                self.0.remove(release);
            }
        }
    }

    /// Removes the revisions for which `exists` returns false.
    pub(super) fn retain(&mut self, exists: impl Fn(&ReleaseId, u32) -> bool) {
        self.0.retain(|release, revisions| {
            revisions.retain(|revision, _| exists(release, *revision));
            !revisions.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Expectation, ReleaseInventory, ReleaseStatus, RevisionState, StoredRevision};

    fn seen(resource_version: &str, second: i64) -> Sighting {
        let at = Timestamp::from_second(second).unwrap();
        Sighting { resource_version: resource_version.to_owned(), at }
    }

    fn revision(status: ReleaseStatus) -> StoredRevision {
        let seen = RevisionState { revision: 2, status, mark: None, rolled_back: None, updated: None };
        StoredRevision { release: ReleaseId::new("default", "hello"), seen }
    }

    fn since(inventory: &ReleaseInventory) -> Option<i64> {
        inventory.unchanged_since(&ReleaseId::new("default", "hello"), 2).map(Timestamp::as_second)
    }

    #[test]
    fn a_pending_record_is_unchanged_since_its_version_was_first_seen() {
        use ReleaseStatus::{Deployed, PendingUpgrade, Uninstalling};
        let mut inventory = ReleaseInventory::default();
        for (name, status, version, second, expected) in [
            ("first seen", PendingUpgrade, "7", 10, Some(10)),
            ("seen again", PendingUpgrade, "7", 20, Some(10)),
            ("changed", PendingUpgrade, "8", 30, Some(30)),
            ("by another operation", Uninstalling, "9", 40, Some(40)),
            ("not pending", Deployed, "10", 50, None),
            ("pending again", PendingUpgrade, "11", 60, Some(60)),
        ] {
            inventory.store_seen(revision(status), seen(version, second));
            assert_eq!(since(&inventory), expected, "{name}");
        }
        inventory.forget(&revision(PendingUpgrade));
        assert_eq!(*inventory.pending(), PendingRecords::default(), "deleted");
    }

    #[test]
    fn a_record_that_was_not_seen_yet_is_unchanged_since_it_was_reported() {
        let release = ReleaseId::new("default", "hello");
        let pending = revision(ReleaseStatus::PendingUpgrade);
        let mut shown = ReleaseInventory::default();
        shown.store_seen(pending.clone(), seen("7", 10));
        let none = ReleaseInventory::default();
        let expectation = |seen| {
            let [since, until] = [20, 50].map(|second| Timestamp::from_second(second).unwrap());
            Expectation { seen, since, until }
        };
        let (reported, removed) = (expectation(Some(pending.seen)), expectation(None));
        for (name, inventory, expected, since) in [
            ("absent", &none, None, None),
            ("shown", &shown, None, Some(10)),
            ("reported", &none, Some(&reported), Some(20)),
            ("reported and shown", &shown, Some(&reported), Some(10)),
            ("removed", &shown, Some(&removed), None),
        ] {
            let unchanged = inventory.newest_unchanged_since(&release, expected);
            assert_eq!(unchanged.map(Timestamp::as_second), since, "{name}");
        }
    }

    #[test]
    fn an_interrupted_watch_changes_no_record() {
        let pending = ReleaseStatus::PendingUpgrade;
        let mut before = ReleaseInventory::default();
        before.store_seen(revision(pending), seen("11", 60));
        for (name, listed, expected) in [
            ("unchanged", Some("11"), Some(60)),
            ("changed while nothing was watched", Some("12"), Some(90)),
            ("deleted while nothing was watched", None, None),
        ] {
            let mut after = ReleaseInventory::with_pending(before.pending().clone());
            if let Some(version) = listed {
                after.store_seen(revision(pending), seen(version, 90));
            }
            after.forget_absent();
            assert_eq!(since(&after), expected, "{name}");
        }
    }
}
