//! When a Sync is applied.

use std::time::Duration;

use chandler_api::extensions::{RESUMED_ANNOTATION, SyncObject};
use jiff::Timestamp;

use super::HeldReason;
use crate::{
    conditions,
    failure::Category,
    poll::{LastPoll, poll_delay},
};

/// The last time at which a Sync was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRun {
    pub revision: String,
    /// The annotation by which it was resumed.
    pub resumed: Option<String>,
    pub poll: LastPoll,
}

impl LastRun {
    /// Returns a run that follows `before`. `failed` is the category of its failure. Failures of the same revision and generation
    /// are counted.
    pub fn after(
        before: Option<&Self>,
        sync: &SyncObject,
        revision: &str,
        failed: Option<Category>,
        now: Timestamp,
    ) -> Self {
        let before = before.filter(|last| last.revision == revision).map(|last| &last.poll);
        Self {
            revision: revision.to_owned(),
            resumed: resumed(sync),
            poll: LastPoll::after(before, sync.metadata.generation, failed, now),
        }
    }

    /// Returns the last run according to the status, if everything is applied and no deletion waits for a paused Cluster or
    /// another Sync. It was by another process; the next one follows within the interval.
    pub fn from_status(sync: &SyncObject, revision: &str, now: Timestamp) -> Option<Self> {
        let status = sync.status.as_ref()?;
        let applied = status.last_applied.as_ref()?.revision == revision
            && status.observed_generation == sync.metadata.generation
            && conditions::is_true(&status.conditions, "Ready")
            && !status.held.iter().any(|held| HeldReason::depends_on_others(&held.reason));
        applied.then(|| Self::after(None, sync, revision, None, now))
    }
}

/// Returns whether a Sync would not be due if its Source had the same revision as before.
pub fn is_due_by_revision_only(
    last: Option<&LastRun>,
    sync: &SyncObject,
    interval: Duration,
    now: Timestamp,
) -> bool {
    last.is_some_and(|last| {
        last.poll.failures.is_none() && !run_delay(Some(last), sync, &last.revision, interval, now).is_zero()
    })
}

fn resumed(sync: &SyncObject) -> Option<String> {
    sync.metadata.annotations.as_ref()?.get(RESUMED_ANNOTATION).cloned()
}

/// Returns the time until a Sync is applied. Zero means that it is due: the first time, at another revision or spec, when it
/// was resumed, after the interval, and after a failure with backoff.
pub fn run_delay(
    last: Option<&LastRun>,
    sync: &SyncObject,
    revision: &str,
    interval: Duration,
    now: Timestamp,
) -> Duration {
    let same = |last: &&LastRun| last.revision == revision && last.resumed == resumed(sync);
    let last = last.filter(same).map(|last| &last.poll);
    let seed = sync.metadata.uid.as_deref().unwrap_or_default();
    poll_delay(last, sync.metadata.generation, interval, seed, now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INTERVAL: Duration = Duration::from_mins(10);

    fn sync(generation: i64, resumed: Option<&str>) -> SyncObject {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {
                "name": "base", "uid": "uid", "generation": generation,
                "annotations": resumed.map(|at| json!({"chandler.dev/resumed-at": at})),
            },
            "spec": {"source": {"sourceRef": {"name": "a"}}, "serviceAccountName": "b"},
        }))
        .unwrap()
    }

    #[test]
    fn a_sync_is_applied_when_something_has_changed_or_the_interval_has_passed() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let last = LastRun::after(None, &sync(1, None), "r1", None, now);
        let delay = |sync: &SyncObject, revision| run_delay(Some(&last), sync, revision, INTERVAL, now);
        assert_eq!(run_delay(None, &sync(1, None), "r1", INTERVAL, now), Duration::ZERO);
        assert_eq!(delay(&sync(1, None), "r2"), Duration::ZERO);
        assert_eq!(delay(&sync(2, None), "r1"), Duration::ZERO);
        assert_eq!(delay(&sync(1, Some("2026-01-01T00:00:00Z")), "r1"), Duration::ZERO);
        let wait = delay(&sync(1, None), "r1");
        assert!(!wait.is_zero() && wait <= INTERVAL);
        let only =
            |last: &LastRun, sync: &SyncObject| is_due_by_revision_only(Some(last), sync, INTERVAL, now);
        let failed = LastRun::after(None, &sync(1, None), "r1", Some(Category::Timeout), now);
        assert!(
            only(&last, &sync(1, None)) && !only(&last, &sync(2, None)) && !only(&failed, &sync(1, None))
        );
        assert!(!is_due_by_revision_only(None, &sync(1, None), INTERVAL, now));
        let retry = run_delay(Some(&failed), &sync(1, None), "r1", INTERVAL, now);
        assert!((4..=6).contains(&retry.as_secs()), "{retry:?}");
    }

    #[test]
    fn a_new_process_waits_for_the_interval_if_everything_is_applied() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let rows = [
            ("True", "r1", None, true),
            ("Unknown", "r1", None, false),
            ("True", "r2", None, false),
            ("True", "r1", Some("ProtectedKind"), true),
            ("True", "r1", Some("ClusterPaused"), false),
            ("True", "r1", Some("WantedBySync"), false),
            ("True", "r1", Some("SyncNotRendered"), false),
        ];
        for (ready, applied, held, waits) in rows {
            let object = |reason: &str| json!({"apiVersion": "a/v1", "kind": "Cluster", "name": "blue", "reason": reason});
            let held: Vec<_> = held.into_iter().map(object).collect();
            let status = json!({
                "observedGeneration": 1, "held": held,
                "lastApplied": {
                    "revision": applied, "digest": "", "sourceRef": {"name": "a"}, "at": "2026-01-01T00:00:00Z",
                },
                "conditions": [{
                    "type": "Ready", "status": ready, "reason": "Applied", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            });
            let sync = SyncObject { status: serde_json::from_value(status).unwrap(), ..sync(1, None) };
            assert_eq!(LastRun::from_status(&sync, "r1", now).is_some(), waits, "{sync:?}");
        }
    }

    #[test]
    fn failures_of_the_same_revision_are_counted() {
        let (sync, now) = (sync(1, None), Timestamp::from_second(1_000_000).unwrap());
        let failed = Some(Category::Timeout);
        let first = LastRun::after(None, &sync, "r1", failed, now);
        let second = LastRun::after(Some(&first), &sync, "r1", failed, now);
        let other = LastRun::after(Some(&second), &sync, "r2", failed, now);
        let count = |run: &LastRun| run.poll.failures.map(|(count, _)| count);
        assert_eq!((count(&first), count(&second), count(&other)), (Some(1), Some(2), Some(1)));
    }
}
