//! How far the release of one cluster is in a rollout.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::{capi::PAUSED_ANNOTATION, reasons::ReleaseReason};
use jiff::Timestamp;
use kube_core::ResourceExt as _;

use super::{RolloutRecord, RolloutTarget, target_of};
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
    /// What it is updated to. `None` if that is not known.
    pub target: Option<&'a RolloutTarget>,
    pub state: MemberState,
}

/// What is known about the target of a release object. Without one of its own, a target that the object has already still counts
/// if other clusters have it, too.
#[derive(Clone, Copy, Debug)]
pub enum TargetState<'a> {
    Known(&'a RolloutTarget),
    /// The Cluster is paused or being deleted, or its release object cannot be composed until a user changes something.
    Paused(Option<&'a RolloutTarget>),
    /// The release object cannot be composed at the moment.
    Unknown(Option<&'a RolloutTarget>),
}

impl<'a> TargetState<'a> {
    /// Returns the target that a release object gets.
    pub fn known(self) -> Option<&'a RolloutTarget> {
        match self {
            Self::Known(target) => Some(target),
            Self::Paused(_) | Self::Unknown(_) => None,
        }
    }
}

/// How far the release of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has not been updated to the target.
    Outdated,
    /// It has been updated, and is not ready yet. It has failed if it is not ready then.
    Updating { until: Option<Timestamp> },
    /// It has been updated, and is ready.
    Updated { ready_since: Timestamp },
    /// It has been updated, and its retries are exhausted, or it was not ready in time.
    Failed { at: Timestamp },
    /// It has been updated, and was rolled back for another reason than a failure.
    RolledBack,
    /// It has the target, but no rollout has updated it, or it was ready in time and is not any more.
    Current,
    /// Its cluster is unreachable.
    Unreachable,
    /// Its Cluster is paused, it is suspended, or a user has to change something before its target is known.
    Paused,
    /// Its target is not known at the moment.
    Unknown,
}

/// Returns how far a release is. `timeout` is that of the rollout.
pub fn member_state<R: ReleaseKind>(
    release: &R,
    target: TargetState<'_>,
    timeout: Duration,
    now: Timestamp,
) -> MemberState {
    let after = |begin: Timestamp| begin.checked_add(timeout).unwrap_or(Timestamp::MAX);
    let (target, missing) = match target {
        TargetState::Known(target) => (Some(target), None),
        TargetState::Paused(target) => (target, Some(MemberState::Paused)),
        TargetState::Unknown(target) => (target, Some(MemberState::Unknown)),
    };
    if let Some(deleted) = release.meta().deletion_timestamp.as_ref().filter(|_| missing.is_none()) {
        // It is installed again under another name.
        let until = after(deleted.0);
        return if now < until { MemberState::Updating { until: Some(until) } } else { MemberState::Current };
    }
    let has_target =
        target.zip(target_of(release)).is_some_and(|(target, of_release)| target.is_same_update(&of_release));
    let record = RolloutRecord::of(release).filter(|_| has_target);
    // A failure counts until the release is ready, also while nothing else is known about it.
    if let Some(at) = record.as_ref().and_then(|record| failed_at(release, record)) {
        return MemberState::Failed { at };
    }
    if let Some(unavailable) = unavailable(release).or(missing) {
        return unavailable;
    }
    let Some(record) = record else { return MemberState::Outdated };
    if record.from.is_none() {
        return MemberState::Current;
    }
    let begin = if record.unavailable { now } else { record.available.unwrap_or(record.at).max(record.at) };
    let until = after(begin);
    let Some(ready) = release.readiness() else {
        // Nothing is known about it yet.
        return MemberState::Updating { until: (now < until).then_some(until) };
    };
    let since = ready.last_transition_time.0;
    if ready.status == "True" {
        let revision = release.status().and_then(|status| status.history.first()).map(|one| one.at.0);
        return MemberState::Updated { ready_since: since.max(record.at).max(revision.unwrap_or(record.at)) };
    }
    if ReleaseReason::parse(&ready.reason) == Some(ReleaseReason::RolledBack) {
        return MemberState::RolledBack;
    }
    if now < until {
        return MemberState::Updating { until: Some(until) };
    }
    // What happens after it was ready in time does not belong to the rollout.
    if record.ready.is_some() && since > until {
        MemberState::Current
    } else {
        MemberState::Failed { at: until }
    }
}

/// Returns the record of a release object in this state, if it differs from the one that the object has. A paused object is left
/// unchanged.
pub fn observed_record<R: ReleaseKind>(
    release: &R,
    state: MemberState,
    now: Timestamp,
) -> Option<RolloutRecord> {
    let is_paused = release.annotations().contains_key(PAUSED_ANNOTATION);
    let old = RolloutRecord::of(release).filter(|record| record.from.is_some() && !is_paused)?;
    let mut new = old.clone();
    match state {
        MemberState::Updated { ready_since } => {
            new.ready = old.ready.or(Some(ready_since));
            (new.failed, new.unavailable) = (None, false);
        }
        MemberState::Failed { at } => new.failed = Some(at),
        MemberState::Unreachable | MemberState::Paused => new.unavailable = old.ready.is_none(),
        MemberState::Updating { .. } if old.unavailable => {
            (new.unavailable, new.available) = (false, Some(now));
        }
        MemberState::Updating { .. }
        | MemberState::Outdated
        | MemberState::RolledBack
        | MemberState::Current
        | MemberState::Unknown => {}
    }
    (new != old).then_some(new)
}

/// Returns when a release has failed that a rollout has updated, unless it is ready.
fn failed_at<R: ReleaseKind>(release: &R, record: &RolloutRecord) -> Option<Timestamp> {
    let ready = release.readiness();
    if record.from.is_none() || ready.is_some_and(|ready| ready.status == "True") {
        return None;
    }
    let last = release.status().and_then(|status| status.last_failure.as_ref()).map(|last| last.at.0);
    let at = ready.and_then(|ready| match ReleaseReason::parse(&ready.reason)? {
        ReleaseReason::RetriesExhausted => Some(last.unwrap_or(ready.last_transition_time.0)),
        // Without a failure, a user has asked for it.
        ReleaseReason::RolledBack => last,
        _ => None,
    });
    at.map(|at| at.max(record.at)).or(record.failed)
}

/// Returns why nothing can be said about a release.
fn unavailable<R: ReleaseKind>(release: &R) -> Option<MemberState> {
    if release.annotations().contains_key(PAUSED_ANNOTATION) {
        return Some(MemberState::Paused);
    }
    if State::of(release) == State::Unreachable || was_unreachable(release) {
        return Some(MemberState::Unreachable);
    }
    let ready = release.readiness().filter(|ready| ready.status != "True")?;
    let reason = ReleaseReason::parse(&ready.reason)?;
    matches!(reason, ReleaseReason::Suspended | ReleaseReason::PolicyNotFound).then_some(MemberState::Paused)
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

    /// A release that was updated at minute 10, and its condition `Ready` since a minute.
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
        RolloutRecord { spec: spec.to_owned(), at: at(10), from, ..RolloutRecord::default() }
            .set(&mut release);
        release
    }

    /// The target of the releases that have the spec `s1`.
    fn target() -> RolloutTarget {
        let (spec, package) = ("s1".to_owned(), "1.0.0".to_owned());
        RolloutTarget { spec, package, ..RolloutTarget::default() }
    }

    fn state(release: &HelmReleaseProxy, target: TargetState<'_>, now: i64) -> MemberState {
        member_state(release, target, Duration::from_mins(15), at(now))
    }

    fn updated(status: &'static str, reason: &'static str, since: i64) -> HelmReleaseProxy {
        release("s1", Some(1), Some((status, reason, since)))
    }

    /// Changes the record of a release.
    fn recorded(mut release: HelmReleaseProxy, change: impl Fn(&mut RolloutRecord)) -> HelmReleaseProxy {
        let mut record = RolloutRecord::of(&release).unwrap();
        change(&mut record);
        record.set(&mut release);
        release
    }

    fn with_failure(mut release: HelmReleaseProxy, minute: i64) -> HelmReleaseProxy {
        let failure = json!({
            "category": "NotReady", "message": "", "input": "", "count": 1, "at": at(minute).to_string(),
        });
        release.status.as_mut().unwrap().last_failure = serde_json::from_value(failure).unwrap();
        release
    }

    #[test]
    fn the_state_follows_from_record_and_conditions() {
        use MemberState::{Current, Failed, Outdated, Paused, RolledBack, Unreachable, Updated, Updating};
        let failed = |since| updated("False", "HelmInstallOrUpgradeFailed", since);
        let was_ready = |release| recorded(release, |record| record.ready = Some(at(12)));
        let until = Some(at(25));
        let mut paused = updated("False", "HelmReleasePending", 10);
        paused.annotations_mut().insert(PAUSED_ANNOTATION.to_owned(), String::new());
        let rows = [
            ("another spec", release("s0", Some(1), Some(("True", "Ready", 0))), 11, Outdated),
            (
                "another spec, failed",
                release("s0", Some(1), Some(("False", "RetriesExhausted", 0))),
                11,
                Outdated,
            ),
            ("no status yet", release("s1", Some(1), None), 11, Updating { until }),
            ("no status after the timeout", release("s1", Some(1), None), 99, Updating { until: None }),
            ("ready as before", updated("True", "Ready", 0), 11, Updated { ready_since: at(10) }),
            ("ready since", updated("True", "Ready", 12), 13, Updated { ready_since: at(12) }),
            ("being applied", updated("False", "HelmReleasePending", 10), 11, Updating { until }),
            ("failed, but retried", failed(11), 24, Updating { until }),
            ("not ready in time", failed(11), 25, Failed { at: at(25) }),
            ("unhealthy in time", was_ready(updated("False", "Unhealthy", 24)), 26, Failed { at: at(25) }),
            ("unhealthy later", was_ready(updated("False", "Unhealthy", 30)), 31, Current),
            ("never ready", updated("False", "Unhealthy", 30), 31, Failed { at: at(25) }),
            ("no retries", updated("False", "RetriesExhausted", 12), 13, Failed { at: at(12) }),
            (
                "rolled back after a failure",
                with_failure(updated("False", "RolledBack", 12), 12),
                13,
                Failed { at: at(12) },
            ),
            ("rolled back by a user", updated("False", "RolledBack", 12), 99, RolledBack),
            ("first install", release("s1", None, Some(("False", "RetriesExhausted", 12))), 99, Current),
            ("unreachable", updated("Unknown", "ClusterUnreachable", 12), 99, Unreachable),
            (
                "unreachable before",
                release("s0", None, Some(("Unknown", "ClusterUnreachable", 5))),
                11,
                Unreachable,
            ),
            ("suspended", updated("False", "Suspended", 12), 99, Paused),
            ("the object is paused", paused, 99, Paused),
            (
                "another version's defaults",
                recorded(updated("True", "Ready", 12), |record| record.defaults = "d1".to_owned()),
                13,
                Outdated,
            ),
        ];
        for (what, release, now, expected) in rows {
            assert_eq!(state(&release, TargetState::Known(&target()), now), expected, "{what}");
        }
        let package = RolloutTarget { package: "2.0.0".to_owned(), ..target() };
        let state = state(&updated("True", "Ready", 0), TargetState::Known(&package), 11);
        assert_eq!(state, Outdated, "another package");
    }

    #[test]
    fn without_a_target_a_release_is_paused_or_unknown() {
        use MemberState::{Paused, Unknown, Unreachable};
        let ready = updated("True", "Ready", 12);
        assert_eq!(state(&ready, TargetState::Paused(None), 13), Paused);
        assert_eq!(state(&ready, TargetState::Unknown(None), 13), Unknown);
        let unreachable = updated("Unknown", "ClusterUnreachable", 12);
        assert_eq!(state(&unreachable, TargetState::Unknown(None), 13), Unreachable, "it holds nothing");
    }

    #[test]
    fn a_failure_counts_until_the_release_is_ready() {
        use MemberState::{Failed, Outdated, Paused, Updated};
        let target = target();
        let failed = with_failure(updated("False", "RetriesExhausted", 12), 12);
        let record =
            observed_record(&failed, state(&failed, TargetState::Known(&target), 13), at(13)).unwrap();
        assert_eq!(record.failed, Some(at(12)));
        let later = |status: &'static str, reason: &'static str| {
            recorded(updated(status, reason, 14), |old| *old = record.clone())
        };
        let known = TargetState::Known(&target);
        let expected = Failed { at: at(12) };
        let rows = [
            ("its cluster is unreachable", later("Unknown", "ClusterUnreachable"), known, expected),
            ("it is suspended", later("False", "Suspended"), known, expected),
            (
                "its Cluster is paused",
                later("False", "RetriesExhausted"),
                TargetState::Paused(Some(&target)),
                Failed { at: at(14) },
            ),
            (
                "it cannot be composed",
                later("Unknown", "ClusterUnreachable"),
                TargetState::Unknown(Some(&target)),
                expected,
            ),
            ("it is retried", later("False", "HelmReleasePending"), known, expected),
            ("a user has rolled it back", later("False", "RolledBack"), known, expected),
            ("it is ready", later("True", "Ready"), known, Updated { ready_since: at(14) }),
            (
                "no other cluster has its target",
                later("False", "Suspended"),
                TargetState::Paused(None),
                Paused,
            ),
        ];
        for (what, release, target, expected) in rows {
            assert_eq!(state(&release, target, 15), expected, "{what}");
        }
        let next = RolloutTarget { spec: "s2".to_owned(), ..target.clone() };
        assert_eq!(state(&later("False", "RetriesExhausted"), TargetState::Known(&next), 15), Outdated);
        let ready = later("True", "Ready");
        let record = observed_record(&ready, Updated { ready_since: at(14) }, at(15)).unwrap();
        assert_eq!((record.failed, record.ready), (None, Some(at(14))), "it is retried with success");
    }

    #[test]
    fn the_time_to_become_ready_begins_again_after_an_interruption() {
        use MemberState::{Failed, Paused, Unreachable, Updating};
        let target = target();
        let known = TargetState::Known(&target);
        let observed = |release: HelmReleaseProxy, now| {
            let record = observed_record(&release, state(&release, known, now), at(now));
            recorded(release, |old| *old = record.clone().unwrap_or_else(|| old.clone()))
        };
        for (reason, expected) in [("ClusterUnreachable", Unreachable), ("Suspended", Paused)] {
            let gone = updated("Unknown", reason, 15);
            assert_eq!(state(&gone, known, 16), expected);
            let record = RolloutRecord::of(&observed(gone, 16)).unwrap();
            let back =
                |since| recorded(updated("False", "HelmReleasePending", since), |old| *old = record.clone());
            assert_eq!(state(&back(30), known, 30), Updating { until: Some(at(45)) }, "{reason}");
            let back = observed(back(30), 30);
            assert_eq!(state(&back, known, 44), Updating { until: Some(at(45)) }, "{reason}");
            assert_eq!(state(&back, known, 45), Failed { at: at(45) }, "{reason}");
        }
        let ready = observed(updated("True", "Ready", 12), 13);
        let gone = recorded(updated("Unknown", "ClusterUnreachable", 14), |old| {
            *old = RolloutRecord::of(&ready).unwrap();
        });
        assert_eq!(observed_record(&gone, Unreachable, at(15)), None, "it was ready before");
        let installed = release("s1", None, Some(("Unknown", "ClusterUnreachable", 14)));
        assert_eq!(observed_record(&installed, Unreachable, at(15)), None, "no rollout has updated it");
    }

    #[test]
    fn the_status_of_an_earlier_spec_says_only_whether_the_cluster_is_reachable() {
        let target = target();
        let state = |reason: &'static str| {
            let mut release = updated("False", reason, 5);
            release.metadata.generation = Some(3);
            state(&release, TargetState::Known(&target), 11)
        };
        assert_eq!(state("ClusterUnreachable"), MemberState::Unreachable);
        assert_eq!(state("RetriesExhausted"), MemberState::Updating { until: Some(at(25)) });
    }

    #[test]
    fn a_release_that_is_replaced_is_updating_until_the_timeout() {
        let mut release = release("s0", None, None);
        release.metadata.deletion_timestamp = serde_json::from_value(json!(at(10).to_string())).unwrap();
        let state = |now| state(&release, TargetState::Known(&target()), now);
        assert_eq!(state(11), MemberState::Updating { until: Some(at(25)) });
        assert_eq!(state(25), MemberState::Current);
    }
}
