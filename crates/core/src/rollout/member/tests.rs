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
    RolloutRecord { spec: spec.to_owned(), at: at(10), from, ..RolloutRecord::default() }.set(&mut release);
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
    let rows = vec![
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
    let record = observed_record(&failed, state(&failed, TargetState::Known(&target), 13), at(13)).unwrap();
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
        ("no other cluster has its target", later("False", "Suspended"), TargetState::Paused(None), Paused),
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
