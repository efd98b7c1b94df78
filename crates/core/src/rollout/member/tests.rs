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

fn rules(now: i64) -> MemberRules {
    MemberRules {
        timeout: Duration::from_mins(15),
        min_ready: Duration::from_mins(1),
        observes_health: true,
        resumed_at: None,
        now: at(now),
    }
}

fn state(release: &HelmReleaseProxy, target: TargetState<'_>, now: i64) -> MemberState {
    member_state(release, target, &rules(now))
}

/// The state of a release whose health is not observed.
fn state_without_health(release: &HelmReleaseProxy, now: i64) -> MemberState {
    let rules = MemberRules { observes_health: false, ..rules(now) };
    member_state(release, TargetState::Known(&target()), &rules)
}

/// A release whose newest revision has this health since a minute.
fn with_health(mut release: HelmReleaseProxy, state: RevisionState, since: i64) -> HelmReleaseProxy {
    let status = release.status.as_mut().unwrap();
    status.revision = Some(2);
    let since = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(since));
    status.health = Some(RevisionHealth { revision: 2, generation: 2, state, since });
    release
}

/// A release that is not ready since a minute, and whose cluster was lost at another one.
fn interrupted(since: i64, lost: Option<i64>, in_time: bool) -> MemberState {
    let until = at(lost.unwrap_or(since) + 15);
    MemberState::Interrupted(Interruption { since: at(since), lost: lost.map(at), until, in_time })
}

fn lost_since(since: i64, first: i64, in_time: bool) -> MemberState {
    interrupted(since, Some(first), in_time)
}

fn ready(minute: i64) -> MemberState {
    MemberState::Updated { ready_since: at(minute), checked: Checked::Health }
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
    use MemberState::{Current, Failed, Outdated, Paused, RolledBack, Unreachable, Updating};
    let failed = |since| updated("False", "HelmInstallOrUpgradeFailed", since);
    let was_ready = |release| recorded(release, |record| record.ready = Some(at(12)));
    let until = Some(at(25));
    let mut paused = updated("False", "HelmReleasePending", 10);
    paused.annotations_mut().insert(PAUSED_ANNOTATION.to_owned(), String::new());
    let lost = |since, first, in_time| lost_since(since, first, in_time);
    let unhealthy = |at_minute, in_time| MemberState::Unhealthy { at: at(at_minute), in_time };
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
        ("ready before", was_ready(updated("True", "Ready", 0)), 11, ready(12)),
        ("ready again", was_ready(updated("True", "Ready", 13)), 14, ready(13)),
        ("being applied", updated("False", "HelmReleasePending", 10), 11, Updating { until }),
        ("failed, but retried", failed(11), 24, Updating { until }),
        ("not ready in time", failed(11), 25, Failed { at: at(25) }),
        ("unhealthy at first", updated("False", "Unhealthy", 11), 24, Updating { until }),
        ("never ready", updated("False", "Unhealthy", 11), 25, Failed { at: at(25) }),
        ("unhealthy in time", was_ready(updated("False", "Unhealthy", 24)), 26, unhealthy(24, true)),
        ("unhealthy later", was_ready(updated("False", "Unhealthy", 30)), 31, unhealthy(30, false)),
        ("changed later", was_ready(failed(30)), 31, interrupted(30, None, false)),
        ("no retries", updated("False", "RetriesExhausted", 12), 13, Failed { at: at(12) }),
        (
            "rolled back after a failure",
            with_failure(updated("False", "RolledBack", 12), 12),
            13,
            Failed { at: at(12) },
        ),
        (
            "rolled back by a user",
            updated("False", "RolledBack", 12),
            99,
            RolledBack { at: at(12), in_time: true },
        ),
        (
            "rolled back by a user in time",
            was_ready(updated("False", "RolledBack", 24)),
            99,
            RolledBack { at: at(24), in_time: true },
        ),
        (
            "rolled back by a user later",
            was_ready(updated("False", "RolledBack", 30)),
            99,
            RolledBack { at: at(30), in_time: false },
        ),
        ("first install", release("s1", None, Some(("False", "RetriesExhausted", 12))), 99, Current),
        ("unreachable", updated("Unknown", "ClusterUnreachable", 12), 24, Updating { until }),
        ("still unreachable", updated("Unknown", "ClusterUnreachable", 12), 25, Failed { at: at(25) }),
        ("lost in time", was_ready(updated("Unknown", "ClusterUnreachable", 20)), 21, lost(20, 20, true)),
        ("lost later", was_ready(updated("Unknown", "ClusterUnreachable", 26)), 27, lost(26, 26, false)),
        (
            "lost again",
            recorded(was_ready(updated("Unknown", "ClusterUnreachable", 20)), |record| {
                record.lost = Some(at(14));
            }),
            21,
            lost(20, 14, true),
        ),
        (
            "unreachable before",
            release("s0", None, Some(("Unknown", "ClusterUnreachable", 5))),
            11,
            Unreachable,
        ),
        (
            "unreachable, first install",
            release("s1", None, Some(("Unknown", "ClusterUnreachable", 5))),
            11,
            Unreachable,
        ),
        ("suspended before", release("s0", Some(1), Some(("False", "Suspended", 12))), 99, Paused),
        ("suspended before it was ready", updated("False", "Suspended", 12), 99, MemberState::Held),
        ("suspended when it was ready", was_ready(updated("False", "Suspended", 13)), 99, ready(12)),
        ("the object is paused", paused, 99, MemberState::Held),
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
fn a_release_is_updated_once_its_objects_are_healthy() {
    use MemberState::{Failed, Updated, Updating};
    use RevisionState as Is;
    let deployed = || updated("True", "Ready", 11);
    let starting = || updated("False", "Unhealthy", 12);
    let result_only = |minute| Updated { ready_since: at(minute), checked: Checked::ResultOnly };
    let (until, confirmed_until) = (Some(at(25)), Some(at(27)));
    let of_earlier_revision = {
        let mut release = with_health(deployed(), Is::Healthy, 5);
        release.status.as_mut().unwrap().revision = Some(3);
        release
    };
    let of_earlier_spec = {
        let mut release = with_health(deployed(), Is::Healthy, 5);
        release.metadata.generation = Some(3);
        release.status.as_mut().unwrap().observed_generation = Some(3);
        release
    };
    let rows = vec![
        ("not known yet", deployed(), 12, Updating { until: confirmed_until }),
        ("of the revision before", of_earlier_revision, 12, Updating { until: confirmed_until }),
        ("of the spec before", of_earlier_spec, 12, Updating { until: confirmed_until }),
        (
            "being confirmed",
            with_health(deployed(), Is::Progressing, 11),
            26,
            Updating { until: confirmed_until },
        ),
        ("never confirmed", with_health(deployed(), Is::Progressing, 11), 27, Failed { at: at(27) }),
        ("healthy", with_health(deployed(), Is::Healthy, 12), 13, ready(12)),
        (
            "healthy before it was updated",
            with_health(updated("True", "Ready", 1), Is::Healthy, 5),
            13,
            ready(10),
        ),
        ("not readable", with_health(deployed(), Is::Unknown, 12), 13, result_only(12)),
        ("slow", with_health(starting(), Is::Progressing, 12), 24, Updating { until }),
        ("too slow", with_health(starting(), Is::Progressing, 12), 25, Failed { at: at(25) }),
        ("failed", with_health(starting(), Is::Failed, 13), 14, Failed { at: at(13) }),
    ];
    for (what, release, now, expected) in rows {
        assert_eq!(state(&release, TargetState::Known(&target()), now), expected, "{what}");
    }
    assert_eq!(state_without_health(&deployed(), 12), result_only(11));
}

#[test]
fn a_failure_of_an_object_counts_until_the_release_is_ready() {
    let known = target();
    let known = TargetState::Known(&known);
    let starting = with_health(updated("False", "Unhealthy", 12), RevisionState::Failed, 13);
    let failed = MemberState::Failed { at: at(13) };
    assert_eq!(state(&starting, known, 14), failed);
    let record = observed_record(&starting, failed, at(14)).unwrap();
    let later = |ready: (&'static str, &'static str), health, now| {
        let release = with_health(updated(ready.0, ready.1, 15), health, 15);
        state(&recorded(release, |old| *old = record.clone()), known, now)
    };
    assert_eq!(later(("False", "Unhealthy"), RevisionState::Progressing, 16), failed, "it is restarted");
    assert_eq!(later(("True", "Ready"), RevisionState::Progressing, 16), failed, "that is not confirmed yet");
    assert_eq!(later(("True", "Ready"), RevisionState::Progressing, 99), failed, "it still counts once");
    assert_eq!(later(("True", "Ready"), RevisionState::Healthy, 17), ready(15));
}

#[test]
fn a_release_that_became_unhealthy_counts_until_it_has_been_ready_for_the_timeout() {
    use MemberState::{Failed, Unhealthy};
    let target = target();
    let known = TargetState::Known(&target);
    let of = |ready: (&'static str, &'static str, i64), record: &RolloutRecord| {
        recorded(updated(ready.0, ready.1, ready.2), |old| *old = record.clone())
    };
    let was_ready =
        RolloutRecord { ready: Some(at(12)), ..RolloutRecord::of(&updated("True", "Ready", 12)).unwrap() };
    let broken = of(("False", "Unhealthy", 14), &was_ready);
    let unhealthy = Unhealthy { at: at(14), in_time: true };
    assert_eq!(state(&broken, known, 15), unhealthy);
    let record = observed_record(&broken, unhealthy, at(15)).unwrap();
    assert_eq!(record.unhealthy, Some(at(14)));
    let flapping = of(("True", "Ready", 16), &record);
    assert_eq!(state(&flapping, known, 30), Failed { at: at(14) }, "it may crash again");
    assert_eq!(state(&flapping, known, 31), ready(16));
    let record = observed_record(&flapping, ready(16), at(31)).unwrap();
    assert_eq!((record.unhealthy, record.failed), (None, None));
    let resumed = MemberRules { resumed_at: Some(at(15)), ..rules(17) };
    assert_eq!(member_state(&flapping, known, &resumed), ready(16), "a user has decided");
    let broken = recorded(broken, |record| record.unhealthy = Some(at(14)));
    assert_eq!(member_state(&broken, known, &resumed), unhealthy, "which does not count");
}

#[test]
fn without_a_target_a_release_is_paused_or_unknown() {
    use MemberState::{Paused, Unknown, Unreachable};
    let ready = updated("True", "Ready", 12);
    assert_eq!(state(&ready, TargetState::Paused(None), 13), Paused, "it may be outdated");
    assert_eq!(state(&ready, TargetState::Unknown(None), 13), Unknown);
    let unreachable = updated("Unknown", "ClusterUnreachable", 12);
    assert_eq!(state(&unreachable, TargetState::Unknown(None), 13), Unreachable, "it holds nothing");
}

#[test]
fn a_failure_counts_until_the_release_is_ready() {
    use MemberState::{Failed, Outdated, Paused};
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
        ("it is ready", with_health(later("True", "Ready"), RevisionState::Healthy, 14), known, ready(14)),
        ("no other cluster has its target", later("False", "Suspended"), TargetState::Paused(None), Paused),
    ];
    for (what, release, target, expected) in rows {
        assert_eq!(state(&release, target, 15), expected, "{what}");
    }
    let next = RolloutTarget { spec: "s2".to_owned(), ..target.clone() };
    assert_eq!(state(&later("False", "RetriesExhausted"), TargetState::Known(&next), 15), Outdated);
    let record = observed_record(&later("True", "Ready"), ready(14), at(15)).unwrap();
    assert_eq!((record.failed, record.ready), (None, Some(at(14))), "it is retried with success");
}

#[test]
fn a_paused_cluster_holds_the_rollout_if_it_was_updated() {
    use MemberState::{Failed, Held, Paused, Unhealthy, Updating};
    let target = target();
    let (known, is_paused) = (TargetState::Known(&target), TargetState::Paused(Some(&target)));
    let paused = |release: &HelmReleaseProxy| state(release, is_paused, 99);
    assert_eq!(paused(&updated("False", "HelmReleasePending", 11)), Held);
    assert_eq!(paused(&updated("Unknown", "ClusterUnreachable", 11)), Held);
    let was_ready = |status, reason, since| {
        recorded(updated(status, reason, since), |record| record.ready = Some(at(12)))
    };
    assert_eq!(paused(&was_ready("True", "Ready", 11)), ready(12));
    assert_eq!(paused(&was_ready("False", "Unhealthy", 14)), Unhealthy { at: at(14), in_time: true });
    assert_eq!(paused(&was_ready("Unknown", "ClusterUnreachable", 14)), lost_since(14, 14, true));
    assert_eq!(paused(&release("s0", Some(1), Some(("True", "Ready", 1)))), Paused, "it was not updated");
    let installed = release("s1", None, Some(("Unknown", "ClusterUnreachable", 14)));
    assert_eq!(paused(&installed), Paused, "no rollout has updated it");
    assert_eq!(observed_record(&installed, lost_since(14, 14, true), at(15)), None);

    // The time to become ready begins again when it is resumed.
    let observed = |release: HelmReleaseProxy, now| {
        let record = observed_record(&release, state(&release, known, now), at(now));
        recorded(release, |old| *old = record.clone().unwrap_or_else(|| old.clone()))
    };
    let record = RolloutRecord::of(&observed(updated("Unknown", "Suspended", 15), 16)).unwrap();
    let back = recorded(updated("False", "HelmReleasePending", 30), |old| *old = record.clone());
    assert_eq!(state(&back, known, 30), Updating { until: Some(at(45)) });
    let back = observed(back, 30);
    assert_eq!(state(&back, known, 44), Updating { until: Some(at(45)) });
    assert_eq!(state(&back, known, 45), Failed { at: at(45) });
}

#[test]
fn a_rollback_counts_from_its_revision() {
    let mut release = updated("False", "RolledBack", 12);
    let history = json!([{"revision": 3, "status": "deployed", "at": at(20).to_string()}]);
    release.status.as_mut().unwrap().history = serde_json::from_value(history).unwrap();
    let expected = MemberState::RolledBack { at: at(20), in_time: true };
    assert_eq!(state(&release, TargetState::Known(&target()), 21), expected);
}

#[test]
fn the_first_loss_of_a_cluster_is_remembered() {
    let target = target();
    let known = TargetState::Known(&target);
    let release = recorded(updated("Unknown", "ClusterUnreachable", 14), |old| old.ready = Some(at(12)));
    let record = observed_record(&release, state(&release, known, 15), at(15)).unwrap();
    assert_eq!(record.lost, Some(at(14)));
    let back = recorded(updated("True", "Ready", 16), |old| *old = record.clone());
    assert_eq!(observed_record(&back, ready(16), at(16)), None);
    let again = recorded(updated("Unknown", "ClusterUnreachable", 18), |old| *old = record.clone());
    assert_eq!(state(&again, known, 19), lost_since(18, 14, true));
    let resumed = MemberRules { resumed_at: Some(at(17)), ..rules(19) };
    assert_eq!(member_state(&again, known, &resumed), lost_since(18, 18, true), "a user has decided");
}

#[test]
fn the_status_of_an_earlier_spec_says_only_whether_the_cluster_is_reachable() {
    let target = target();
    let state = |reason: &'static str| {
        let mut release = updated("False", reason, 5);
        release.metadata.generation = Some(3);
        state(&release, TargetState::Known(&target), 11)
    };
    assert_eq!(state("ClusterUnreachable"), MemberState::Updating { until: Some(at(25)) });
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
