//! The releases on a workload cluster, read from the labels of the objects that record their revisions.

mod pending;

use std::collections::{BTreeMap, HashMap};

use chandler_api::extensions::ROLLED_BACK_LABEL;
use jiff::Timestamp;

pub use self::pending::{PendingRecords, Sighting};
use crate::{
    digest::{InputDigest, InputMark},
    identity::ReleaseId,
};

/// Where a package tool records its releases on a workload cluster. Each revision of a release is one object in the
/// release's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRecords {
    pub api_version: String,
    pub kind: String,
    pub plural: String,
    /// Selects the objects that are records.
    pub label_selector: String,
    /// Name of the object that records a revision, with `{release}` and `{revision}` in it.
    pub object_name: String,
    /// Keys of the labels of a record.
    pub release_label: String,
    pub revision_label: String,
    pub status_label: String,
    /// Keys of labels with the time of the last change. The first that exists counts.
    pub time_labels: Vec<String>,
    /// Selects the objects of all releases, for watches of their health. Empty if the tool does not label them.
    pub object_selector: String,
}

impl ReleaseRecords {
    /// Reads the revision that an object records. Returns `None` if the object is no record.
    pub fn revision(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Option<StoredRevision> {
        let name = labels.get(&self.release_label)?;
        let revision = labels.get(&self.revision_label)?.parse().ok()?;
        let status = ReleaseStatus::parse(labels.get(&self.status_label)?);
        let mark = |label| {
            let mark = labels.get(label).and_then(|text: &String| InputMark::parse(text));
            mark.filter(|mark| mark.revision == revision)
        };
        let rolled_back = mark(ROLLED_BACK_LABEL).map(|mark| mark.digest);
        let updated = self
            .time_labels
            .iter()
            .find_map(|key| labels.get(key)?.parse::<i64>().ok())
            .and_then(|seconds| Timestamp::from_second(seconds).ok());
        let mark = mark(InputMark::LABEL);
        let seen = RevisionState { revision, status, mark, rolled_back, updated };
        Some(StoredRevision { release: ReleaseId::new(namespace, name), seen })
    }

    /// Returns the name of the object that records a revision.
    pub fn object_name(&self, release: &ReleaseId, revision: u32) -> String {
        self.object_name.replace("{release}", &release.name).replace("{revision}", &revision.to_string())
    }
}

/// Status of a release, in Helm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseStatus {
    Deployed,
    Failed,
    Superseded,
    Uninstalled,
    Uninstalling,
    PendingInstall,
    PendingUpgrade,
    PendingRollback,
    Unknown,
}

impl ReleaseStatus {
    const WORDS: [(&'static str, Self); 9] = [
        ("deployed", Self::Deployed),
        ("failed", Self::Failed),
        ("superseded", Self::Superseded),
        ("uninstalled", Self::Uninstalled),
        ("uninstalling", Self::Uninstalling),
        ("pending-install", Self::PendingInstall),
        ("pending-upgrade", Self::PendingUpgrade),
        ("pending-rollback", Self::PendingRollback),
        ("unknown", Self::Unknown),
    ];

    pub fn parse(word: &str) -> Self {
        Self::WORDS.iter().find(|(known, _)| *known == word).map_or(Self::Unknown, |(_, status)| *status)
    }

    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, status)| *status == self).map_or("unknown", |(word, _)| word)
    }

    /// An operation is running, or was when its process died.
    pub fn is_interrupted_or_running(self) -> bool {
        matches!(
            self,
            Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback | Self::Uninstalling
        )
    }
}

/// The newest revision of a release, as its labels tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionState {
    pub revision: u32,
    pub status: ReleaseStatus,
    /// The inputs of this revision. `None` if another client created it.
    pub mark: Option<InputMark>,
    /// The inputs that had failed before a rollback created this revision.
    pub rolled_back: Option<InputDigest>,
    /// When the revision was stored last.
    pub updated: Option<Timestamp>,
}

/// One stored revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRevision {
    pub release: ReleaseId,
    pub seen: RevisionState,
}

/// The releases of one workload cluster: for each the revisions that are stored.
#[derive(Clone, Debug, Default)]
pub struct ReleaseInventory {
    releases: HashMap<ReleaseId, BTreeMap<u32, RevisionState>>,
    /// The number of revisions of all releases.
    count: usize,
    pending: PendingRecords,
}

impl ReleaseInventory {
    /// Returns the number of stored revisions of all releases.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns an empty inventory that remembers since when pending records are unchanged. Those that are not stored again
    /// are removed by [`Self::forget_absent`].
    pub fn with_pending(pending: PendingRecords) -> Self {
        Self { pending, ..Self::default() }
    }

    /// Removes what [`Self::with_pending`] remembers about records that do not exist any more.
    pub fn forget_absent(&mut self) {
        let releases = &self.releases;
        self.pending.retain(|release, revision| {
            releases.get(release).is_some_and(|stored| stored.contains_key(&revision))
        });
    }

    /// Returns since when the records of pending revisions are unchanged.
    pub fn pending(&self) -> &PendingRecords {
        &self.pending
    }

    /// Returns when the record of a pending revision was first seen in its current version. `None` if it is not pending or
    /// does not exist.
    pub fn unchanged_since(&self, release: &ReleaseId, revision: u32) -> Option<Timestamp> {
        self.pending.get(release, revision).map(|sighting| sighting.at)
    }

    /// Returns since when the record of the newest revision is unchanged. If Chandler's own operation has reported that revision
    /// and its record was not seen yet: since the report.
    pub fn newest_unchanged_since(
        &self,
        release: &ReleaseId,
        expected: Option<&Expectation>,
    ) -> Option<Timestamp> {
        let newest = expected.map_or_else(|| self.newest(release), |expected| expected.seen.as_ref())?;
        let seen = self.unchanged_since(release, newest.revision);
        seen.or_else(|| expected.map(|expected| expected.since))
    }

    /// Adds or replaces a revision.
    pub fn store(&mut self, stored: StoredRevision) {
        let revisions = self.releases.entry(stored.release).or_default();
        if revisions.insert(stored.seen.revision, stored.seen).is_none() {
            self.count += 1;
        }
    }

    /// Adds or replaces a revision whose record was seen.
    pub fn store_seen(&mut self, stored: StoredRevision, sighting: Sighting) {
        let StoredRevision { release, seen } = &stored;
        if seen.status.is_interrupted_or_running() {
            self.pending.insert(release, seen.revision, sighting);
        } else {
            self.pending.remove(release, seen.revision);
        }
        self.store(stored);
    }

    /// Removes a revision.
    pub fn forget(&mut self, stored: &StoredRevision) {
        self.pending.remove(&stored.release, stored.seen.revision);
        if let Some(revisions) = self.releases.get_mut(&stored.release) {
            if revisions.remove(&stored.seen.revision).is_some() {
                self.count -= 1;
            }
            if revisions.is_empty() {
                self.releases.remove(&stored.release);
            }
        }
    }

    /// The newest revision of a release.
    pub fn newest(&self, release: &ReleaseId) -> Option<&RevisionState> {
        self.revisions(release)?.last_key_value().map(|(_, seen)| seen)
    }

    /// All stored revisions of a release.
    pub fn revisions(&self, release: &ReleaseId) -> Option<&BTreeMap<u32, RevisionState>> {
        self.releases.get(release)
    }

    /// Returns the revision that a rollback restores after these inputs have failed: the last one before the newest that was
    /// deployed from other inputs. `None` also if another client has deployed it, because an older one is not what was running.
    pub fn rollback_target(&self, release: &ReleaseId, failed: &InputDigest) -> Option<&RevisionState> {
        let mut earlier = self.revisions(release)?.values().rev().skip(1);
        let last = earlier.find(|seen| {
            matches!(seen.status, ReleaseStatus::Deployed | ReleaseStatus::Superseded)
                && seen.mark.as_ref().is_none_or(|mark| mark.digest != *failed)
        });
        last.filter(|seen| seen.mark.is_some())
    }
}

/// The result of Chandler's own operation. It is newer than the inventory until the watch shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// `None` if the release was removed.
    pub seen: Option<RevisionState>,
    /// When the operation reported it.
    pub since: Timestamp,
    /// Until when the watch should show it. Then the inventory counts again.
    pub until: Timestamp,
}

impl Expectation {
    /// Returns whether the result is still newer than the inventory.
    pub fn holds(&self, listed: Option<&RevisionState>, now: Timestamp) -> bool {
        now < self.until && !self.is_met(listed)
    }

    /// Returns whether the inventory shows this result, or a newer one.
    pub fn is_met(&self, listed: Option<&RevisionState>) -> bool {
        match (&self.seen, listed) {
            (None, None) => true,
            (None, Some(listed)) => listed.status == ReleaseStatus::Uninstalled,
            (Some(_), None) => false,
            (Some(ours), Some(listed)) => {
                listed.revision > ours.revision
                    || (listed.revision == ours.revision
                        && (listed.status, &listed.mark) == (ours.status, &ours.mark))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(version: &str, status: &str, mark: Option<&str>) -> BTreeMap<String, String> {
        [
            ("name", "hello"),
            ("owner", "helm"),
            ("version", version),
            ("status", status),
            ("modifiedAt", "1700000000"),
        ]
        .into_iter()
        .chain(mark.map(|mark| (InputMark::LABEL, mark)))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
    }

    fn records() -> ReleaseRecords {
        let text = str::to_owned;
        ReleaseRecords {
            api_version: text("v1"),
            kind: text("Secret"),
            plural: text("secrets"),
            label_selector: text("owner=helm"),
            object_name: text("sh.helm.release.v1.{release}.v{revision}"),
            release_label: text("name"),
            revision_label: text("version"),
            status_label: text("status"),
            time_labels: vec![text("modifiedAt"), text("createdAt")],
            object_selector: text("app.kubernetes.io/managed-by=Helm"),
        }
    }

    #[test]
    fn a_record_is_found_by_release_and_revision() {
        let name = records().object_name(&ReleaseId::new("default", "hello"), 12);
        assert_eq!(name, "sh.helm.release.v1.hello.v12");
        assert_eq!(records().revision("default", &BTreeMap::new()), None);
    }

    #[test]
    fn revisions_are_counted_once() {
        let mut inventory = ReleaseInventory::default();
        let revision =
            |version: &str| records().revision("default", &labels(version, "deployed", None)).unwrap();
        for (version, count) in [("1", 1), ("2", 2), ("2", 2)] {
            inventory.store(revision(version));
            assert_eq!(inventory.count(), count);
        }
        for (version, count) in [("3", 2), ("2", 1), ("2", 1), ("1", 0)] {
            inventory.forget(&revision(version));
            assert_eq!(inventory.count(), count);
        }
    }

    #[test]
    fn newest_is_by_number_not_by_order_of_events() {
        let mut inventory = ReleaseInventory::default();
        for (version, status) in [("10", "deployed"), ("9", "superseded"), ("2", "superseded")] {
            inventory.store(records().revision("default", &labels(version, status, None)).unwrap());
        }
        let id = ReleaseId::new("default", "hello");
        assert_eq!(inventory.newest(&id).map(|seen| seen.revision), Some(10));
        inventory.forget(&records().revision("default", &labels("10", "deployed", None)).unwrap());
        assert_eq!(inventory.newest(&id).map(|seen| seen.revision), Some(9));
    }

    #[test]
    fn a_mark_counts_only_for_its_own_revision() {
        let mark = format!("{}.3", "a".repeat(40));
        let ours = records().revision("default", &labels("3", "deployed", Some(&mark))).unwrap();
        assert!(ours.seen.mark.is_some());
        let carried = records().revision("default", &labels("4", "deployed", Some(&mark))).unwrap();
        assert_eq!(carried.seen.mark, None, "a rollback or a revision by hand carries our label forward");
    }

    #[test]
    fn the_inputs_before_a_rollback_count_only_for_the_revision_that_it_created() {
        let mark = format!("{}.3", "b".repeat(40));
        let rolled_back = |version: &str| {
            let mut labels = labels(version, "deployed", None);
            labels.insert(ROLLED_BACK_LABEL.to_owned(), mark.clone());
            records().revision("default", &labels).unwrap().seen.rolled_back
        };
        assert_eq!(rolled_back("3"), InputDigest::parse(&"b".repeat(40)));
        assert_eq!(rolled_back("4"), None, "Helm copies labels to the next revision");
    }

    /// Revisions by number, status and inputs; the number of the one that a rollback restores.
    type RollbackRow<'a> = (&'a [(u32, &'a str, Option<char>)], Option<u32>);

    #[test]
    fn a_rollback_restores_the_last_deployed_revision_of_other_inputs() {
        let revisions = |rows: &[(u32, &str, Option<char>)]| {
            let mut inventory = ReleaseInventory::default();
            for (revision, status, letter) in rows {
                let mark = letter.map(|letter| format!("{}.{revision}", letter.to_string().repeat(40)));
                let labels = labels(&revision.to_string(), status, mark.as_deref());
                inventory.store(records().revision("default", &labels).unwrap());
            }
            let failed = InputDigest::parse(&"b".repeat(40)).unwrap();
            let target = inventory.rollback_target(&ReleaseId::new("default", "hello"), &failed);
            target.map(|seen| seen.revision)
        };
        let rows: [RollbackRow<'_>; 9] = [
            (&[], None),
            (&[(1, "failed", Some('b'))], None),
            (&[(1, "deployed", Some('a'))], None),
            (&[(1, "deployed", Some('a')), (2, "failed", Some('b'))], Some(1)),
            (&[(1, "superseded", Some('c')), (2, "deployed", Some('a')), (3, "failed", Some('b'))], Some(2)),
            (&[(1, "deployed", None), (2, "failed", Some('b'))], None),
            (&[(1, "superseded", Some('a')), (2, "deployed", None), (3, "failed", Some('b'))], None),
            (
                &[(1, "superseded", Some('a')), (2, "superseded", Some('b')), (3, "failed", Some('b'))],
                Some(1),
            ),
            (&[(1, "failed", Some('a')), (2, "failed", Some('b'))], None),
        ];
        for (stored, expected) in rows {
            assert_eq!(revisions(stored), expected, "{stored:?}");
        }
    }

    #[test]
    fn our_own_operation_is_believed_until_the_watch_caught_up() {
        let [since, now, until, late] = [0, 1, 5, 5].map(|s| Timestamp::from_second(s).unwrap());
        let seen = |revision, status| RevisionState {
            revision,
            status,
            mark: None,
            rolled_back: None,
            updated: None,
        };
        let (pending, done) = (seen(2, ReleaseStatus::PendingUpgrade), seen(2, ReleaseStatus::Deployed));
        let newer = seen(3, ReleaseStatus::Deployed);
        let applied = Expectation { seen: Some(done.clone()), since, until };
        let removed = Expectation { seen: None, since, until };
        let rows = [
            (&applied, None, now, true),
            (&applied, Some(&pending), now, true),
            (&applied, Some(&done), now, false),
            (&applied, Some(&newer), now, false),
            (&applied, None, late, false),
            (&removed, Some(&done), now, true),
            (&removed, None, now, false),
            (&removed, Some(&done), late, false),
        ];
        for (expectation, listed, now, holds) in rows {
            assert_eq!(expectation.holds(listed, now), holds, "{expectation:?} {listed:?}");
        }
    }

    #[test]
    fn words_read_back() {
        for (word, status) in ReleaseStatus::WORDS {
            assert_eq!(ReleaseStatus::parse(word).as_str(), word);
            assert_eq!(ReleaseStatus::parse(word), status);
        }
    }
}
