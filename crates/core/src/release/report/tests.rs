use chandler_api::{
    addons::HelmReleaseProxy,
    status::{HEALTHY, ObjectRecord, POLICY_ACCEPTED},
};

use super::*;
use crate::{conditions::merge, policy::ReleasePolicy, release::ReleaseKind};

fn reported(
    plan: &Plan,
    old: &[Condition],
    health: Option<&ReleaseHealth>,
    policy: &PolicyState,
) -> Option<Report> {
    let checks = Checks { health, ..Checks::default() };
    report(plan, HelmReleaseProxy::VOCABULARY, "default/hello", None, old, checks, policy)
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
            Wait::RolledBack { failure: Some(failure) },
            "RolledBack",
            "rolled back: NotReady: Deployment default/web",
        ),
        (Wait::RolledBack { failure: None }, "RolledBack", "run `chandler retry`"),
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
    use ReleaseHealth::Unchanged;
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
fn conditions_that_do_not_apply_are_removed() {
    let policy = PolicyState::Known { policy: ReleasePolicy::default(), conflict: None };
    let types = |report: &Report| report.conditions.iter().map(|one| one.type_).collect::<Vec<_>>();
    let all = reported(&Plan::NoOp, &[], Some(&ReleaseHealth::Healthy), &policy).unwrap();
    assert_eq!(types(&all), ["Ready", "ClusterAvailable", "HelmReleaseReady", HEALTHY, POLICY_ACCEPTED]);
    let none = reported(&Plan::NoOp, &stored(all), None, &PolicyState::None).unwrap();
    assert_eq!(types(&none), ["Ready", "ClusterAvailable", "HelmReleaseReady"]);
}

#[test]
fn a_policy_is_accepted_missing_or_in_conflict() {
    let known = |conflict: Option<&str>| PolicyState::Known {
        policy: ReleasePolicy::default(),
        conflict: conflict.map(str::to_owned),
    };
    let missing = PolicyState::Missing("AddonPolicy fleet/careful".to_owned());
    let rows = [
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
