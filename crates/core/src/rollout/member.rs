//! How far the release of one cluster is in a rollout.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::reasons::ReleaseReason;
use jiff::Timestamp;

use super::{Mark, Target};
use crate::{
    identity::ClusterKey,
    release::{ReleaseKind, State},
};

/// A cluster of a placement that has a release object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    pub cluster: &'a ClusterKey,
    /// The labels of the Cluster.
    pub labels: &'a BTreeMap<String, String>,
    /// What it moves to. `None` if that is not known, because the Cluster is paused or its release object cannot be composed.
    pub target: Option<&'a Target>,
    pub state: MemberState,
}

/// How far the release of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has not been moved to the target.
    Outdated,
    /// It has been moved, and is not ready yet. It has failed if it is not ready then.
    Moving { until: Option<Timestamp> },
    /// It has been moved, and is ready.
    Moved { ready_since: Timestamp },
    /// It has been moved, and its retries are exhausted, or it was not ready in time.
    Failed { at: Timestamp },
    /// It has the target, but no rollout has moved it there.
    Current,
    /// Its cluster is unreachable.
    Unreachable,
    /// Its Cluster is paused, it is suspended, or its target is not known.
    Paused,
}

/// Returns how far a release is. `timeout` is that of the rollout.
pub fn member_state<R: ReleaseKind>(
    release: &R,
    target: Option<&Target>,
    timeout: Duration,
    now: Timestamp,
) -> MemberState {
    let Some(target) = target else { return MemberState::Paused };
    let after = |begin: Timestamp| begin.checked_add(timeout).unwrap_or(Timestamp::MAX);
    if let Some(deleted) = &release.meta().deletion_timestamp {
        // It is installed again under another name.
        let until = after(deleted.0);
        return if now < until { MemberState::Moving { until: Some(until) } } else { MemberState::Current };
    }
    let ready = release.readiness();
    let is_ready = ready.is_some_and(|ready| ready.status == "True");
    let reason = ready.filter(|_| !is_ready).and_then(|ready| ReleaseReason::parse(&ready.reason));
    if State::of(release) == State::Unreachable || was_unreachable(release) {
        return MemberState::Unreachable;
    }
    if matches!(reason, Some(ReleaseReason::Suspended | ReleaseReason::PolicyNotFound)) {
        return MemberState::Paused;
    }
    let mark = Mark::of(release);
    let has_target = |mark: &&Mark| mark.spec == target.spec && release.package_key() == target.package;
    let Some(mark) = mark.as_ref().filter(has_target) else { return MemberState::Outdated };
    if mark.from.is_none() {
        return MemberState::Current;
    }
    let until = after(mark.at);
    let Some(ready) = ready else {
        // Nothing is known about it yet.
        return MemberState::Moving { until: (now < until).then_some(until) };
    };
    let since = ready.last_transition_time.0;
    if is_ready {
        let revision = release.status().and_then(|status| status.history.first()).map(|record| record.at.0);
        return MemberState::Moved { ready_since: since.max(mark.at).max(revision.unwrap_or(mark.at)) };
    }
    if matches!(reason, Some(ReleaseReason::RetriesExhausted | ReleaseReason::RolledBack)) {
        let failed = release.status().and_then(|status| status.last_failure.as_ref()).map(|last| last.at.0);
        return MemberState::Failed { at: failed.unwrap_or(since).max(mark.at) };
    }
    if now < until {
        return MemberState::Moving { until: Some(until) };
    }
    // If it has become unready later, it was ready in time.
    if since <= until { MemberState::Failed { at: until } } else { MemberState::Current }
}

/// Returns whether the last status, of whichever spec, says that the cluster is unreachable.
fn was_unreachable<R: ReleaseKind>(release: &R) -> bool {
    release.readiness().is_none()
        && release.status().is_some_and(|status| {
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
            State::from_ready(ready, false, false) == State::Unreachable
        })
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;
    use serde_json::{Value, json};

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// A release that was moved at minute 10, and its condition `Ready` since a minute.
    fn release(spec: &str, from: Option<u32>, ready: Option<(&str, &str, i64)>) -> HelmReleaseProxy {
        let conditions: Vec<Value> = ready
            .iter()
            .map(|(status, reason, since)| {
                json!({
                    "type": "Ready", "status": status, "reason": reason, "message": "",
                    "lastTransitionTime": at(*since).to_string(),
                })
            })
            .collect();
        let mut release: HelmReleaseProxy = serde_json::from_value(json!({
            "metadata": {"name": "hello-blue", "generation": 2},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example", "version": "1.0.0"},
            "status": {"observedGeneration": 2, "conditions": conditions},
        }))
        .unwrap();
        Mark { spec: spec.to_owned(), at: at(10), from, kubernetes: None }.set(&mut release);
        release
    }

    #[test]
    fn the_state_follows_from_mark_and_conditions() {
        use MemberState::{Current, Failed, Moved, Moving, Outdated, Paused, Unreachable};
        let moved = |status: &'static str, reason: &'static str, since| {
            release("s1", Some(1), Some((status, reason, since)))
        };
        let failed = |since| moved("False", "HelmInstallOrUpgradeFailed", since);
        let until = Some(at(25));
        let rows = [
            ("another spec", release("s0", Some(1), Some(("True", "Ready", 0))), 11, Outdated),
            (
                "another spec, failed",
                release("s0", Some(1), Some(("False", "RetriesExhausted", 0))),
                11,
                Outdated,
            ),
            ("no status yet", release("s1", Some(1), None), 11, Moving { until }),
            ("no status after the timeout", release("s1", Some(1), None), 99, Moving { until: None }),
            ("ready as before", moved("True", "Ready", 0), 11, Moved { ready_since: at(10) }),
            ("ready since", moved("True", "Ready", 12), 13, Moved { ready_since: at(12) }),
            ("being applied", moved("False", "HelmReleasePending", 10), 11, Moving { until }),
            ("failed, but retried", failed(11), 24, Moving { until }),
            ("not ready in time", failed(11), 25, Failed { at: at(25) }),
            ("unhealthy in time", moved("False", "Unhealthy", 24), 26, Failed { at: at(25) }),
            ("unhealthy later", moved("False", "Unhealthy", 30), 31, Current),
            ("no retries", moved("False", "RetriesExhausted", 12), 13, Failed { at: at(12) }),
            ("rolled back", moved("False", "RolledBack", 12), 13, Failed { at: at(12) }),
            ("first install", release("s1", None, Some(("False", "RetriesExhausted", 12))), 99, Current),
            ("unreachable", moved("Unknown", "ClusterUnreachable", 12), 99, Unreachable),
            (
                "unreachable before",
                release("s0", None, Some(("Unknown", "ClusterUnreachable", 5))),
                11,
                Unreachable,
            ),
            ("suspended", moved("False", "Suspended", 12), 99, Paused),
        ];
        let target = Target { spec: "s1".to_owned(), package: "1.0.0".to_owned(), kubernetes: None };
        for (what, release, now, expected) in rows {
            let state = member_state(&release, Some(&target), Duration::from_mins(15), at(now));
            assert_eq!(state, expected, "{what}");
            assert_eq!(member_state(&release, None, Duration::from_mins(15), at(now)), Paused);
        }
        let package = Target { package: "2.0.0".to_owned(), ..target };
        let state = member_state(&moved("True", "Ready", 0), Some(&package), Duration::from_mins(15), at(11));
        assert_eq!(state, Outdated, "another package");
    }

    #[test]
    fn the_status_of_an_earlier_spec_says_only_whether_the_cluster_is_reachable() {
        let target = Target { spec: "s1".to_owned(), package: "1.0.0".to_owned(), kubernetes: None };
        let state = |reason: &'static str| {
            let mut release = release("s1", Some(1), Some(("False", reason, 5)));
            release.metadata.generation = Some(3);
            member_state(&release, Some(&target), Duration::from_mins(15), at(11))
        };
        assert_eq!(state("ClusterUnreachable"), MemberState::Unreachable);
        assert_eq!(state("RetriesExhausted"), MemberState::Moving { until: Some(at(25)) });
    }

    #[test]
    fn a_release_that_is_replaced_is_moving_until_the_timeout() {
        let target = Target { spec: "s1".to_owned(), package: "1.0.0".to_owned(), kubernetes: None };
        let mut release = release("s0", None, None);
        release.metadata.deletion_timestamp = serde_json::from_value(json!(at(10).to_string())).unwrap();
        let state = |now| member_state(&release, Some(&target), Duration::from_mins(15), at(now));
        assert_eq!(state(11), MemberState::Moving { until: Some(at(25)) });
        assert_eq!(state(25), MemberState::Current);
    }
}
