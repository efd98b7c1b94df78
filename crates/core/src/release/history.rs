//! The last revisions of a release, for a person who asks what happened when.

use std::collections::BTreeMap;

use chandler_api::status::RevisionRecord;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::inventory::{ReleaseStatus, Seen};

/// How many revisions a status tells of.
const SHOWN: usize = 5;

/// The last revisions, newest first: those that are `stored`, and `newest`, which may be newer than what is stored.
/// What `old` knew of a revision beyond its status is kept.
pub fn history(
    old: &[RevisionRecord],
    stored: &BTreeMap<u32, Seen>,
    newest: Option<&Seen>,
    now: Timestamp,
) -> Vec<RevisionRecord> {
    let mut revisions: BTreeMap<u32, &Seen> = stored.iter().map(|(number, seen)| (*number, seen)).collect();
    revisions.extend(newest.map(|seen| (seen.revision, seen)));
    let deployed = newest.filter(|seen| seen.status == ReleaseStatus::Deployed).map(|seen| seen.revision);
    let record = |(revision, seen): (u32, &Seen)| {
        let known = old.iter().find(|known| known.revision == revision);
        RevisionRecord {
            revision,
            status: settled(seen, deployed).as_str().to_owned(),
            version: known.and_then(|known| known.version.clone()),
            at: known.map_or_else(|| Time(seen.updated.unwrap_or(now)), |known| known.at.clone()),
        }
    };
    revisions.into_iter().rev().take(SHOWN).map(record).collect()
}

/// Only one revision is deployed, even if the watch has not yet told that the one before it is not.
fn settled(seen: &Seen, deployed: Option<u32>) -> ReleaseStatus {
    match seen.status {
        ReleaseStatus::Deployed if deployed.is_some_and(|newest| seen.revision < newest) => {
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

    fn seen(revision: u32, status: ReleaseStatus, second: i64) -> Seen {
        Seen { revision, status, mark: None, updated: Some(at(second)) }
    }

    fn told(history: &[RevisionRecord]) -> Vec<(u32, &str, i64)> {
        history.iter().map(|r| (r.revision, r.status.as_str(), r.at.0.as_second())).collect()
    }

    #[test]
    fn what_the_watch_has_not_told_yet_is_there_already() {
        let stored = BTreeMap::from([(1, seen(1, ReleaseStatus::Deployed, 10))]);
        let newest = Seen { updated: None, ..seen(2, ReleaseStatus::Deployed, 0) };
        let early = history(&[], &stored, Some(&newest), at(20));
        assert_eq!(told(&early), [(2, "deployed", 20), (1, "superseded", 10)]);
        let stored = BTreeMap::from([
            (1, seen(1, ReleaseStatus::Superseded, 21)),
            (2, seen(2, ReleaseStatus::Deployed, 21)),
        ]);
        let late = history(&early, &stored, stored.get(&2), at(30));
        assert_eq!(late, early, "the watch catching up changes nothing");
    }

    #[test]
    fn versions_are_kept_and_old_revisions_go() {
        let stored: BTreeMap<_, _> =
            (1..=9).map(|n| (n, seen(n, ReleaseStatus::Superseded, i64::from(n)))).collect();
        let mut old = history(&[], &stored, None, at(0));
        assert_eq!(old.iter().map(|r| r.revision).collect::<Vec<_>>(), [9, 8, 7, 6, 5]);
        old[0].version = Some("1.2.3".to_owned());
        assert_eq!(history(&old, &stored, None, at(0)), old);
    }

    #[test]
    fn a_failed_upgrade_leaves_the_one_before_it_deployed() {
        let stored = BTreeMap::from([(1, seen(1, ReleaseStatus::Deployed, 1))]);
        let failed = seen(2, ReleaseStatus::Failed, 2);
        let history = history(&[], &stored, Some(&failed), at(3));
        assert_eq!(told(&history), [(2, "failed", 2), (1, "deployed", 1)]);
    }
}
