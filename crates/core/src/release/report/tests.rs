use chandler_api::{
    addons::HelmReleaseProxy,
    status::{HEALTHY, ObjectRecord, POLICY_ACCEPTED},
};
use serde_json::json;

use super::*;
use crate::{
    conditions::merge,
    health::HealthChecks,
    policy::ReleasePolicy,
    release::{ReleaseKind, RolledBackCause},
};

fn reported(
    plan: &Plan,
    old: &[Condition],
    health: Option<&ReleaseHealth>,
    policy: &PolicyState,
) -> Option<Report> {
    let findings = Findings { health, ..Findings::default() };
    report(plan, HelmReleaseProxy::VOCABULARY, "default/hello", None, old, findings, policy)
}

fn conditions(plan: &Plan) -> Option<Vec<(&'static str, Status, &'static str)>> {
    let report = reported(plan, &[], None, &PolicyState::None)?;
    Some(report.conditions.iter().map(|c| (c.type_, c.status, c.reason.as_str())).collect())
}

#[test]
fn conditions_follow_the_plan() {
    let unreachable = Failure::new(Category::Unreachable, "no route");
    let until = Timestamp::from_second(9).unwrap();
    let backoff =
        |step, failure: &Failure| Plan::Wait(Wait::Backoff { step, failure: failure.clone(), until });
    let rows = [
        (Plan::NoOp, (Status::True, "Ready"), (Status::True, "Available"), (Status::True, "Ready")),
        (
            Plan::Operate(OperationKind::Apply(ApplyKind::Install)),
            (Status::False, "HelmReleasePending"),
            (Status::True, "Available"),
            (Status::False, "HelmReleasePending"),
        ),
        (
            Plan::Wait(Wait::Unavailable(unreachable.clone())),
            (Status::Unknown, "ClusterUnreachable"),
            (Status::Unknown, "ClusterUnreachable"),
            (Status::Unknown, "ClusterUnreachable"),
        ),
        (
            Plan::Wait(Wait::Unavailable(Failure::new(Category::Unauthorized, "expired"))),
            (Status::False, "ClusterUnauthorized"),
            (Status::False, "ClusterUnauthorized"),
            (Status::Unknown, "ClusterUnauthorized"),
        ),
        (
            backoff(Step::Apply, &unreachable),
            (Status::False, "HelmInstallOrUpgradeFailed"),
            (Status::True, "Available"),
            (Status::False, "HelmInstallOrUpgradeFailed"),
        ),
        (
            backoff(Step::Read, &unreachable),
            (Status::False, "HelmReleaseGetFailed"),
            (Status::True, "Available"),
            (Status::False, "HelmReleaseGetFailed"),
        ),
        (
            backoff(Step::Remove, &unreachable),
            (Status::False, "HelmReleaseDeletionFailed"),
            (Status::True, "Available"),
            (Status::False, "HelmReleaseDeletionFailed"),
        ),
        (
            backoff(Step::Resolve, &Failure::new(Category::GetCaCertificateFailed, "no key ca.crt")),
            (Status::False, "GetCACertificateFailed"),
            (Status::False, "GetCACertificateFailed"),
            (Status::Unknown, "GetCACertificateFailed"),
        ),
        (
            backoff(Step::Resolve, &Failure::new(Category::GetCredentialsFailed, "no Secret")),
            (Status::False, "GetCredentialsFailed"),
            (Status::False, "GetCredentialsFailed"),
            (Status::Unknown, "GetCredentialsFailed"),
        ),
        (
            backoff(Step::Resolve, &Failure::new(Category::VerificationFailed, "it is not signed")),
            (Status::False, "VerificationFailed"),
            (Status::True, "Available"),
            (Status::False, "VerificationFailed"),
        ),
        (
            Plan::RemoveFinalizer(RemoveFinalizer::Removed),
            (Status::False, "HelmReleaseDeleted"),
            (Status::True, "Available"),
            (Status::False, "HelmReleaseDeleted"),
        ),
    ];
    for (plan, ready, cluster, release) in rows {
        let expected = vec![
            ("Ready", ready.0, ready.1),
            ("ClusterAvailable", cluster.0, cluster.1),
            ("HelmReleaseReady", release.0, release.1),
        ];
        assert_eq!(conditions(&plan), Some(expected), "{plan:?}");
    }
}

#[test]
fn paused_objects_keep_their_conditions() {
    assert_eq!(conditions(&Plan::Wait(Wait::Paused)), None);
}

fn condition<'a>(report: &'a Report, type_: &str) -> &'a NewCondition {
    report.conditions.iter().find(|condition| condition.type_ == type_).unwrap()
}

fn stored(report: Report) -> Vec<Condition> {
    merge(&[], report.conditions, Some(1), Timestamp::UNIX_EPOCH)
}

fn crashing() -> ReleaseHealth {
    let object = ObjectRecord {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    };
    let reason = "0 of 2 replicas are available".to_owned();
    ReleaseHealth::Unhealthy { object, reason, since: Timestamp::UNIX_EPOCH, more: 0 }
}

#[test]
fn a_restart_keeps_the_conditions() {
    let loading = Plan::Wait(Wait::InventoryLoading);
    let first = reported(&loading, &[], None, &PolicyState::None).unwrap();
    assert_eq!(reported(&loading, &stored(first), None, &PolicyState::None), None);
}

#[test]
fn unknown_rules_keep_the_conditions_of_what_runs() {
    let failure = Failure::new(Category::Internal, "the labels of namespace team cannot be read");
    let unknown = Plan::Wait(Wait::RulesUnknown { failure });
    let ready = stored(reported(&Plan::NoOp, &[], None, &PolicyState::None).unwrap());
    assert_eq!(reported(&unknown, &ready, None, &PolicyState::None), None);
    let first = reported(&unknown, &[], None, &PolicyState::None).unwrap();
    assert_eq!(
        (first.conditions[0].status, first.conditions[0].reason.as_str()),
        (Status::False, "PreparingToHelmInstall")
    );
    assert!(first.conditions[0].message.contains("cannot be read"), "{first:?}");
}

/// Nothing has refused the release, so it has not failed.
#[test]
fn a_release_that_waits_for_unknown_rules_is_pending() {
    let ready = stored(reported(&Plan::NoOp, &[], None, &PolicyState::None).unwrap());
    let message = "the labels of namespace team cannot be read";
    let rows = [
        (Category::Internal, "HelmReleasePending"),
        (Category::NotAllowed, "HelmReleasePending"),
        (Category::InvalidSpec, "InvalidSpec"),
    ];
    for (category, reason) in rows {
        let waiting = Plan::Wait(Wait::AwaitingRules { failure: Failure::new(category, message) });
        for old in [&[][..], ready.as_slice()] {
            let report = reported(&waiting, old, None, &PolicyState::None).unwrap();
            let found = condition(&report, "Ready");
            assert_eq!((found.status, found.reason.as_str()), (Status::False, reason), "{category:?}");
            assert!(found.message.contains(message), "{}", found.message);
        }
    }
}

#[test]
fn a_release_that_waits_because_of_its_policy_says_so() {
    let failure = Failure::new(Category::NotReady, "Deployment default/web: 0 of 2 replicas");
    let name = "AddonPolicy fleet/careful".to_owned();
    let rows = [
        (Wait::Suspended, "Suspended", "default/hello is suspended"),
        (Wait::PolicyNotFound { name }, "PolicyNotFound", "AddonPolicy fleet/careful does not exist"),
        (
            Wait::Exhausted { failure: failure.clone() },
            "RetriesExhausted",
            "NotReady: Deployment default/web",
        ),
        (
            Wait::Stalled { failure: Failure::new(Category::ToolCrashed, "out of memory") },
            "Stalled",
            "ToolCrashed: out of memory (it has happened three times in a row",
        ),
        (
            Wait::RolledBack { cause: RolledBackCause::Failed(failure) },
            "RolledBack",
            "rolled back: NotReady: Deployment default/web",
        ),
        (
            Wait::RolledBack { cause: RolledBackCause::FailedBefore },
            "RolledBack",
            "the current spec has failed before; change the spec, or run `chandler retry`",
        ),
        (
            Wait::RolledBack { cause: RolledBackCause::Requested },
            "RolledBack",
            "a user has asked for it; change the spec, or run `chandler retry`",
        ),
        (
            Wait::RolledBack { cause: RolledBackCause::RolloutAborted },
            "RolledBack",
            "its rollout was aborted; change the spec of the placement, or run `chandler rollout resume`",
        ),
    ];
    for (wait, reason, text) in rows {
        let report = reported(&Plan::Wait(wait.clone()), &[], None, &PolicyState::None).unwrap();
        let ready = condition(&report, "Ready");
        assert_eq!((ready.status, ready.reason.as_str()), (Status::False, reason), "{wait:?}");
        assert!(ready.message.contains(text), "{}", ready.message);
        assert_eq!(condition(&report, "ClusterAvailable").status, Status::True);
    }
}

#[test]
fn operations_after_the_last_retry_are_reported() {
    let until = Timestamp::from_second(9).unwrap();
    let failure = Failure::new(Category::Timeout, "no answer");
    let backoff = |step| Plan::Wait(Wait::Backoff { step, failure: failure.clone(), until });
    let rows = [
        (Plan::Operate(OperationKind::Rollback), "HelmReleasePending", "rolling back release default/hello"),
        (
            Plan::Operate(OperationKind::UninstallFailed),
            "HelmReleaseDeleting",
            "uninstalling release default/hello",
        ),
        (backoff(Step::Rollback), "HelmInstallOrUpgradeFailed", "Timeout: no answer"),
        (backoff(Step::Remove), "HelmReleaseDeletionFailed", "Timeout: no answer"),
        (Plan::RemoveFinalizer(RemoveFinalizer::Orphaned), "HelmReleaseDeleting", "is left in place"),
    ];
    for (plan, reason, text) in rows {
        let report = reported(&plan, &[], None, &PolicyState::None).unwrap();
        let ready = condition(&report, "Ready");
        assert_eq!((ready.status, ready.reason.as_str()), (Status::False, reason), "{plan:?}");
        assert!(ready.message.contains(text), "{}", ready.message);
    }
}

#[test]
fn an_unhealthy_release_is_not_ready() {
    let report = reported(&Plan::NoOp, &[], Some(&crashing()), &PolicyState::None).unwrap();
    let message = "Deployment default/web: 0 of 2 replicas are available";
    for type_ in ["Ready", HEALTHY] {
        let unhealthy = condition(&report, type_);
        assert_eq!((unhealthy.status, unhealthy.reason.as_str()), (Status::False, "Unhealthy"));
        assert_eq!(unhealthy.message, message);
    }
    assert_eq!(condition(&report, "HelmReleaseReady").status, Status::True, "Helm's record says deployed");
    let ReleaseHealth::Unhealthy { object, reason, since, .. } = crashing() else { unreachable!() };
    let several = ReleaseHealth::Unhealthy { object, reason, since, more: 2 };
    let report = reported(&Plan::NoOp, &[], Some(&several), &PolicyState::None).unwrap();
    assert_eq!(condition(&report, "Ready").message, format!("{message}; and 2 more objects"));
}

#[test]
fn the_reason_of_an_operation_comes_before_health() {
    let upgrade = Plan::Operate(OperationKind::UPGRADE);
    let report = reported(&upgrade, &[], Some(&crashing()), &PolicyState::None).unwrap();
    assert_eq!(condition(&report, "Ready").reason.as_str(), "HelmReleasePending");
    assert_eq!(condition(&report, HEALTHY).status, Status::False);
}

#[test]
fn unknown_health_keeps_what_was_reported() {
    use ReleaseHealth::{Unchanged, Undescribed};
    let named = |name: &str| {
        let ReleaseHealth::Unhealthy { object, .. } = crashing() else { unreachable!() };
        ObjectRecord { name: name.to_owned(), ..object }
    };
    let unknown = |name: &str| ReleaseHealth::Unknown { objects: vec![named("other"), named(name)] };
    let upgrade = Plan::Wait(Wait::Operating(OperationKind::UPGRADE));
    let unreachable = Plan::Wait(Wait::Unavailable(Failure::new(Category::Unreachable, "no route")));
    let (healthy, crashing) = (Some(ReleaseHealth::Healthy), Some(crashing()));
    let (is_true, is_false) = (Some((Status::True, "Healthy")), Some((Status::False, "Unhealthy")));
    let is_unknown = Some((Status::Unknown, "HealthUnknown"));
    let (no_op, yes, no) = (&Plan::NoOp, Status::True, Status::False);
    // What was reported, what is known now, the plan; the conditions Healthy and Ready.
    let rows = [
        ("never observed", None, Unchanged, no_op, None, yes),
        ("never observed, no status", None, unknown("web"), no_op, None, yes),
        ("healthy", healthy.clone(), Unchanged, no_op, is_true, yes),
        ("healthy, no status", healthy.clone(), unknown("web"), no_op, is_true, yes),
        ("unhealthy", crashing.clone(), Unchanged, no_op, is_false, no),
        ("unhealthy, no status", crashing.clone(), unknown("web"), no_op, is_false, no),
        ("unhealthy, others without a status", crashing.clone(), unknown("web-2"), no_op, is_unknown, yes),
        ("never observed, another revision", None, Undescribed, no_op, None, yes),
        ("healthy, another revision", healthy.clone(), Undescribed, no_op, is_unknown, yes),
        ("unhealthy, another revision", crashing.clone(), Undescribed, no_op, is_unknown, yes),
        ("unhealthy, being read", crashing.clone(), Undescribed, &Plan::Describe, is_false, no),
        ("unhealthy, unreachable", crashing.clone(), Undescribed, &unreachable, is_false, Status::Unknown),
        ("unreachable", crashing.clone(), Unchanged, &unreachable, is_false, Status::Unknown),
        ("healthy, operating", healthy, Unchanged, &upgrade, is_unknown, no),
        ("unhealthy, operating", crashing, Unchanged, &upgrade, is_unknown, no),
    ];
    for (name, before, now, plan, expected, ready) in rows {
        let old = reported(&Plan::NoOp, &[], before.as_ref(), &PolicyState::None).map(stored).unwrap();
        let report = reported(plan, &old, Some(&now), &PolicyState::None).unwrap();
        let health = report.conditions.iter().find(|condition| condition.type_ == HEALTHY);
        let seen = health.map(|health| (health.status, health.reason.as_str()));
        assert_eq!(seen, expected, "{name}");
        assert_eq!(condition(&report, "Ready").status, ready, "{name}");
        if let Some(health) = health.filter(|health| health.status == Status::False) {
            assert!(health.message.starts_with("Deployment default/web: "), "{name}: {}", health.message);
        }
    }
}

#[test]
fn a_message_that_counts_replicas_changes_every_30_seconds() {
    const ONE: &str = "Deployment default/web: 1 of 3 replicas are available";
    const TWO: &str = "Deployment default/web: 2 of 3 replicas are available";
    const OTHER: &str = "Deployment default/web-2: 1 of 3 replicas are available";
    let at = |second| Timestamp::from_second(second).unwrap();
    let conditions = |message: &str| {
        let (status, reason) = match message {
            "" => (Status::True, ReleaseReason::Healthy),
            _ => (Status::False, ReleaseReason::Unhealthy),
        };
        let reason = reason.in_vocabulary(HelmReleaseProxy::VOCABULARY);
        let condition = |type_| NewCondition { type_, status, reason, message: message.to_owned() };
        vec![condition("Ready"), condition(HEALTHY)]
    };
    // The old and the new message, when it changed last, and now; the message to write, when it changed last, and the next check.
    let rows = [
        ("healthy", "", "", None, 100, ("", None, None)),
        ("has become unhealthy", "", ONE, None, 100, (ONE, Some(100), None)),
        ("unhealthy again", "", TWO, Some(90), 100, (TWO, Some(100), None)),
        ("the same", ONE, ONE, Some(10), 100, (ONE, Some(10), None)),
        ("after a restart", ONE, TWO, None, 100, (TWO, Some(100), None)),
        ("another count too soon", ONE, TWO, Some(90), 119, (ONE, Some(90), Some(120))),
        ("another count", ONE, TWO, Some(90), 120, (TWO, Some(120), None)),
        ("another object", ONE, OTHER, Some(90), 100, (OTHER, Some(100), None)),
        ("has become healthy", ONE, "", Some(90), 100, ("", Some(90), None)),
    ];
    for (name, old, new, changed_at, now, (message, changed, again)) in rows {
        let old = merge(&[], conditions(old), Some(1), Timestamp::UNIX_EPOCH);
        let (mut wanted, mut changed_at) = (conditions(new), changed_at.map(at));
        let next = keep_health_message(&old, &mut wanted, &mut changed_at, at(now));
        assert_eq!(wanted, conditions(message), "{name}");
        assert_eq!((changed_at, next), (changed.map(at), again.map(at)), "{name}");
    }
    let mut upgrading = conditions(TWO);
    upgrading[0].reason = ReleaseReason::Pending.in_vocabulary(HelmReleaseProxy::VOCABULARY);
    let old = merge(&[], conditions(ONE), Some(1), Timestamp::UNIX_EPOCH);
    keep_health_message(&old, &mut upgrading, &mut Some(at(90)), at(100));
    assert_eq!(upgrading.iter().map(|one| &*one.message).collect::<Vec<_>>(), [TWO, ONE], "another reason");
}

#[test]
fn conditions_that_do_not_apply_are_removed() {
    let policy = PolicyState::Known { policy: Box::default(), conflict: None };
    let types = |report: &Report| report.conditions.iter().map(|one| one.type_).collect::<Vec<_>>();
    let all = reported(&Plan::NoOp, &[], Some(&ReleaseHealth::Healthy), &policy).unwrap();
    assert_eq!(types(&all), ["Ready", "ClusterAvailable", "HelmReleaseReady", HEALTHY, POLICY_ACCEPTED]);
    let none = reported(&Plan::NoOp, &stored(all), None, &PolicyState::None).unwrap();
    assert_eq!(types(&none), ["Ready", "ClusterAvailable", "HelmReleaseReady"]);
}

#[test]
fn a_policy_is_accepted_missing_invalid_or_in_conflict() {
    let known = |conflict: Option<&str>| PolicyState::Known {
        policy: Box::default(),
        conflict: conflict.map(str::to_owned),
    };
    let missing = PolicyState::Missing("AddonPolicy fleet/careful".to_owned());
    let invalid = |conflict: Option<&str>| {
        let check = json!({"apiVersion": "example.dev/v1", "kind": "Widget", "current": "status."});
        let checks = HealthChecks::compile(&[serde_json::from_value(check).unwrap()]);
        let policy = ReleasePolicy { checks, ..ReleasePolicy::default() };
        PolicyState::Known { policy: policy.into(), conflict: conflict.map(str::to_owned) }
    };
    let rows = [
        (invalid(None), Status::False, "PolicyInvalid", "health.checks[0].current: line 1, column 8"),
        (invalid(Some("force wins")), Status::False, "PolicyInvalid", "; force wins"),
        (known(None), Status::True, "Accepted", ""),
        (known(Some("force wins")), Status::False, "PolicyConflict", "force wins"),
        (missing, Status::False, "PolicyNotFound", "AddonPolicy fleet/careful does not exist"),
    ];
    for (policy, status, reason, text) in rows {
        let report = reported(&Plan::NoOp, &[], None, &policy).unwrap();
        let accepted = condition(&report, POLICY_ACCEPTED);
        assert_eq!((accepted.status, accepted.reason.as_str()), (status, reason));
        assert!(accepted.message.contains(text), "{}", accepted.message);
        assert_eq!(condition(&report, "Ready").status, Status::True, "the release is up to date");
    }
}
