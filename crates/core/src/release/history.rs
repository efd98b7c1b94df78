//! The history of a release in its status.

use std::collections::BTreeMap;

use chandler_api::status::RevisionRecord;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::inventory::{ReleaseStatus, RevisionState};

/// Number of revisions in a status.
const SHOWN: usize = 5;

/// Returns the last revisions, newest first.
///
/// `newest` may be a revision that the watch has not added to `stored` yet. Chart version and time of a revision are
/// kept from `old`.
pub fn history(
    old: &[RevisionRecord],
    stored: &BTreeMap<u32, RevisionState>,
    newest: Option<&RevisionState>,
    now: Timestamp,
) -> Vec<RevisionRecord> {
    let mut revisions: BTreeMap<u32, &RevisionState> =
        stored.iter().map(|(number, state)| (*number, state)).collect();
    revisions.extend(newest.map(|state| (state.revision, state)));
    let deployed = newest.filter(|state| state.status == ReleaseStatus::Deployed).map(|state| state.revision);
    let record = |(revision, state): (u32, &RevisionState)| {
        let known = old.iter().find(|known| known.revision == revision);
        RevisionRecord {
            revision,
            status: status(state, deployed).as_str().to_owned(),
            version: known.and_then(|known| known.version.clone()),
            at: known.map_or_else(|| Time(state.updated.unwrap_or(now)), |known| known.at.clone()),
        }
    };
    revisions.into_iter().rev().take(SHOWN).map(record).collect()
}

/// Returns the status of a revision. Only one is deployed: older ones count as superseded before the watch shows it.
fn status(state: &RevisionState, deployed: Option<u32>) -> ReleaseStatus {
    match state.status {
        ReleaseStatus::Deployed if deployed.is_some_and(|newest| state.revision < newest) => {
            ReleaseStatus::Superseded
        }
        status => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn state(revision: u32, status: ReleaseStatus, second: i64) -> RevisionState {
        RevisionState { revision, status, mark: None, rolled_back: None, updated: Some(at(second)) }
    }

    fn rows(history: &[RevisionRecord]) -> Vec<(u32, &str, i64)> {
        history.iter().map(|r| (r.revision, r.status.as_str(), r.at.0.as_second())).collect()
    }

    #[test]
    fn a_revision_is_listed_before_the_watch_shows_it() {
        let stored = BTreeMap::from([(1, state(1, ReleaseStatus::Deployed, 10))]);
        let newest = RevisionState { updated: None, ..state(2, ReleaseStatus::Deployed, 0) };
        let early = history(&[], &stored, Some(&newest), at(20));
        assert_eq!(rows(&early), [(2, "deployed", 20), (1, "superseded", 10)]);
        let stored = BTreeMap::from([
            (1, state(1, ReleaseStatus::Superseded, 21)),
            (2, state(2, ReleaseStatus::Deployed, 21)),
        ]);
        let late = history(&early, &stored, stored.get(&2), at(30));
        assert_eq!(late, early, "the watch catching up changes nothing");
    }

    #[test]
    fn versions_are_kept_and_old_revisions_are_dropped() {
        let stored: BTreeMap<_, _> =
            (1..=9).map(|n| (n, state(n, ReleaseStatus::Superseded, i64::from(n)))).collect();
        let mut old = history(&[], &stored, None, at(0));
        assert_eq!(old.iter().map(|r| r.revision).collect::<Vec<_>>(), [9, 8, 7, 6, 5]);
        old[0].version = Some("1.2.3".to_owned());
        assert_eq!(history(&old, &stored, None, at(0)), old);
    }

    #[test]
    fn a_failed_upgrade_leaves_the_previous_revision_deployed() {
        let stored = BTreeMap::from([(1, state(1, ReleaseStatus::Deployed, 1))]);
        let failed = state(2, ReleaseStatus::Failed, 2);
        let history = history(&[], &stored, Some(&failed), at(3));
        assert_eq!(rows(&history), [(2, "failed", 2), (1, "deployed", 1)]);
    }
}
