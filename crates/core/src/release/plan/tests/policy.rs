//! Plans under a policy: suspended releases, missing policies, retries and what follows them, orphans.

use chandler_api::extensions::{OnFailure, Remediation};

use super::*;
use crate::tenancy::Refusal;

const SUSPENDED: Plan = Plan::Wait(Wait::Suspended);
const ROLLBACK: Plan = Plan::Operate(OperationKind::Rollback);
const UNINSTALL_FAILED: Plan = Plan::Operate(OperationKind::UninstallFailed);

fn not_found() -> Plan {
    Plan::Wait(Wait::PolicyNotFound { name: "AddonPolicy fleet/careful".to_owned() })
}

fn failure() -> Failure {
    Failure::new(Category::NotReady, "0 of 2 replicas")
}

fn exhausted() -> Plan {
    Plan::Wait(Wait::Exhausted { failure: failure() })
}

fn remediation(on_failure: OnFailure) -> Remediation {
    Remediation { retries: 2, on_failure }
}

/// Failures of applying `inputs`, the last at second 1005. The next attempt is due.
fn failed(inputs: &InputDigest, attempts: u32) -> PastFailure {
    PastFailure { attempts, ..past(failure_key::apply(GENERATION, inputs), failure(), 1_010) }
}

/// A revision that was created by a rollback because inputs `a` have failed.
fn rolled_back() -> RevisionState {
    RevisionState { rolled_back: Some(digest('a')), ..revision(ReleaseStatus::Deployed, Some('b')) }
}

#[test]
fn a_held_release_is_not_operated() {
    let inputs = digest('a');
    let current = revision(ReleaseStatus::Deployed, Some('a'));
    let outdated = revision(ReleaseStatus::Deployed, Some('b'));
    let foreign = revision(ReleaseStatus::Deployed, None);
    let pending = revision(ReleaseStatus::PendingUpgrade, Some('a'));
    let past = failed(&inputs, 3);
    let base = |inventory| stable(&inputs, inventory);
    let deleting = |inventory| Observed { deleting: true, ..base(inventory) };
    let running = |observed| Observed { operation: Some(upgrading(&inputs)), ..observed };
    let operating = Plan::Wait(Wait::Operating(OperationKind::UPGRADE));
    let queued = |operation| Some(InFlight { operation, phase: OperationPhase::Queued });
    let upgrade = queued(Operation::Apply { kind: ApplyKind::Upgrade, inputs: &inputs });
    // `None` means that the release waits because it is held.
    let rows = [
        ("install", base(None), None),
        ("upgrade", base(Some(&outdated)), None),
        ("recover", base(Some(&pending)), None),
        ("adopt", base(Some(&foreign)), None),
        ("up to date", base(Some(&current)), Some(Plan::NoOp)),
        ("read", Observed { described: None, ..base(Some(&current)) }, Some(Plan::Describe)),
        ("resolve", Observed { inputs: InputState::Unresolved, ..base(None) }, Some(Plan::Resolve)),
        ("paused", Observed { paused: true, ..base(None) }, Some(Plan::Wait(Wait::Paused))),
        (
            "after retries",
            Observed {
                remediation: Some(remediation(OnFailure::Uninstall)),
                failure: Some(&past),
                ..base(Some(&outdated))
            },
            None,
        ),
        ("queued", Observed { operation: upgrade, ..base(Some(&outdated)) }, Some(Plan::Withdraw)),
        ("running", running(base(Some(&outdated))), Some(operating.clone())),
        ("removal", deleting(Some(&current)), None),
        ("removal of an absent release", deleting(None), None),
        (
            "removal, queued",
            Observed { operation: queued(Operation::Remove), ..deleting(Some(&current)) },
            Some(Plan::Withdraw),
        ),
        ("removal, while an upgrade runs", running(deleting(Some(&current))), Some(operating)),
        ("orphan", Observed { orphan: true, ..deleting(Some(&current)) }, None),
        (
            "moved",
            Observed { moved: true, ..deleting(Some(&current)) },
            Some(Plan::RemoveFinalizer(RemoveFinalizer::Moved)),
        ),
        (
            "moved, while an upgrade runs",
            running(Observed { moved: true, ..deleting(Some(&current)) }),
            Some(Plan::Cancel(OperationKind::UPGRADE)),
        ),
        (
            "the Cluster is gone",
            Observed { cluster: ClusterState::Missing, ..deleting(Some(&current)) },
            Some(Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone)),
        ),
        (
            "the Cluster is being deleted, and the release has to be removed first",
            Observed {
                cluster: ClusterState::Deleting,
                remove_with_cluster: true,
                ..deleting(Some(&current))
            },
            None,
        ),
    ];
    for (name, observed, expected) in rows {
        let suspended = Observed { suspended: true, ..observed.clone() };
        assert_eq!(plan(&suspended, GENERATION), expected.clone().unwrap_or(SUSPENDED), "{name}");
        let missing = Observed { policy_missing: Some("AddonPolicy fleet/careful"), ..observed };
        assert_eq!(plan(&missing, GENERATION), expected.unwrap_or_else(not_found), "{name}");
    }
}

#[test]
fn a_running_operation_of_a_held_release_is_not_canceled() {
    let (inputs, old) = (digest('a'), digest('b'));
    let waiting = InFlight { phase: OperationPhase::Waiting, ..upgrading(&old) };
    let outdated = Observed { operation: Some(waiting), ..stable(&inputs, None) };
    assert_eq!(plan(&outdated, GENERATION), Plan::Cancel(OperationKind::UPGRADE));
    let suspended = Observed { suspended: true, ..outdated };
    assert_eq!(plan(&suspended, GENERATION), Plan::Wait(Wait::Operating(OperationKind::UPGRADE)));
}

#[test]
fn an_orphan_is_left_on_its_cluster() {
    let (inputs, deployed) = (digest('a'), revision(ReleaseStatus::Deployed, Some('a')));
    let orphan = Observed { deleting: true, orphan: true, ..stable(&inputs, Some(&deployed)) };
    assert_eq!(plan(&orphan, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::Orphaned));
    let running = Observed { operation: Some(upgrading(&inputs)), ..orphan.clone() };
    assert_eq!(plan(&running, GENERATION), Plan::Cancel(OperationKind::UPGRADE));
    let needed = ["other".to_owned()];
    let needed = Observed { needed_by: &needed, ..orphan };
    assert_eq!(plan(&needed, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::Orphaned));
}

#[test]
fn retries_are_limited() {
    use OnFailure::{Keep, Rollback, Uninstall};
    let inputs = digest('a');
    let broken = revision(ReleaseStatus::Failed, Some('a'));
    let before = revision(ReleaseStatus::Deployed, Some('b'));
    let pending = revision(ReleaseStatus::PendingRollback, Some('b'));
    let removed = revision(ReleaseStatus::Uninstalled, Some('a'));
    let [foreign, older] = [None, Some('b')].map(|mark| revision(ReleaseStatus::Failed, mark));
    let [failed_rollback, interrupted_rollback] = [ReleaseStatus::Failed, ReleaseStatus::PendingRollback]
        .map(|status| RevisionState { status, ..rolled_back() });
    let (upgrade, install) = (operate(ApplyKind::Upgrade), operate(ApplyKind::Install));
    let rows = [
        ("the last retry is left", Keep, 2, Some(&broken), None, upgrade.clone()),
        ("keep", Keep, 3, Some(&broken), Some(1), exhausted()),
        ("keep, not installed", Keep, 3, None, None, exhausted()),
        ("roll back, one retry is left", Rollback, 2, Some(&broken), Some(1), upgrade),
        ("roll back", Rollback, 3, Some(&broken), Some(1), ROLLBACK),
        ("roll back, more failures", Rollback, 9, Some(&broken), Some(1), ROLLBACK),
        ("roll back, interrupted", Rollback, 3, Some(&pending), Some(1), ROLLBACK),
        ("roll back to nothing", Rollback, 3, Some(&broken), None, exhausted()),
        ("roll back what is not installed", Rollback, 3, None, None, exhausted()),
        ("roll back what has changed nothing", Rollback, 3, Some(&before), Some(1), exhausted()),
        ("roll back, which has failed", Rollback, 3, Some(&failed_rollback), Some(1), ROLLBACK),
        ("roll back, which was interrupted", Rollback, 3, Some(&interrupted_rollback), Some(1), ROLLBACK),
        ("uninstall, one retry is left", Uninstall, 2, None, None, install),
        ("uninstall", Uninstall, 3, Some(&broken), None, UNINSTALL_FAILED),
        ("uninstall, a rollback has failed", Uninstall, 3, Some(&failed_rollback), Some(1), UNINSTALL_FAILED),
        ("uninstall what has changed nothing", Uninstall, 3, Some(&before), Some(1), exhausted()),
        ("uninstall what other inputs have broken", Uninstall, 3, Some(&older), Some(1), exhausted()),
        ("uninstall what another client has broken", Uninstall, 3, Some(&foreign), Some(1), exhausted()),
        ("uninstalled", Uninstall, 3, None, None, exhausted()),
        ("uninstalled, history kept", Uninstall, 3, Some(&removed), None, exhausted()),
    ];
    for (name, on_failure, attempts, newest, rollback_to, expected) in rows {
        let past = failed(&inputs, attempts);
        let observed = Observed {
            remediation: Some(remediation(on_failure)),
            failure: Some(&past),
            rollback_to,
            ..stable(&inputs, newest)
        };
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn failures_that_do_not_count_limit_no_retries() {
    let (inputs, broken) = (digest('a'), revision(ReleaseStatus::Failed, Some('a')));
    let past = failed(&inputs, 9);
    let later = PastFailure { retry_at: at(2_000), ..past.clone() };
    let base = Observed {
        remediation: Some(remediation(OnFailure::Rollback)),
        failure: Some(&past),
        rollback_to: Some(1),
        ..stable(&inputs, Some(&broken))
    };
    let upgrade = operate(ApplyKind::Upgrade);
    let other = failed(&digest('c'), 9);
    let asked = |second| Some(at(second));
    let backoff = Plan::Wait(Wait::Backoff { step: Step::Apply, failure: failure(), until: at(2_000) });
    let no_policy = Observed { remediation: None, failure: Some(&later), ..base.clone() };
    let rows = [
        ("exhausted", base.clone(), ROLLBACK),
        ("at once", Observed { failure: Some(&later), ..base.clone() }, ROLLBACK),
        ("other inputs", Observed { failure: Some(&other), ..base.clone() }, upgrade.clone()),
        ("retry asked before", Observed { retry_at: asked(1_005), ..base.clone() }, ROLLBACK),
        ("retry asked since", Observed { retry_at: asked(1_006), ..base.clone() }, upgrade.clone()),
        ("retry asked now", Observed { retry_at: asked(1_010), ..base.clone() }, upgrade.clone()),
        ("retry asked for later", Observed { retry_at: asked(1_011), ..base.clone() }, ROLLBACK),
        ("no policy", no_policy.clone(), backoff.clone()),
        (
            "no policy, retry asked for later",
            Observed { retry_at: asked(1_011), ..no_policy.clone() },
            backoff,
        ),
        ("no policy, retry asked", Observed { retry_at: asked(1_006), ..no_policy }, upgrade.clone()),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
    assert_eq!(plan(&base, Some(4)), upgrade, "a changed spec is tried at once");
}

#[test]
fn what_follows_the_last_retry_does_not_wait_for_dependencies() {
    let (inputs, broken) = (digest('a'), revision(ReleaseStatus::Failed, Some('a')));
    let (past, unmet) = (failed(&inputs, 3), ["HelmChartProxy cni".to_owned()]);
    let base = Observed {
        remediation: Some(remediation(OnFailure::Rollback)),
        failure: Some(&past),
        rollback_to: Some(1),
        unmet: &unmet,
        ..stable(&inputs, Some(&broken))
    };
    assert_eq!(plan(&base, GENERATION), ROLLBACK);
    let paused = Observed { placement_paused: true, ..base.clone() };
    assert_eq!(plan(&paused, GENERATION), Plan::Wait(Wait::Paused));
    let changing = Observed { placement_changing: true, ..base };
    assert_eq!(plan(&changing, GENERATION), Plan::Wait(Wait::PlacementChanging));
}

/// A failed rollback or removal is recorded under its own key, and the attempts are remembered.
#[test]
fn a_failed_rollback_or_removal_is_retried() {
    let (inputs, broken) = (digest('a'), revision(ReleaseStatus::Failed, Some('a')));
    let rows = [
        (OnFailure::Rollback, failure_key::rollback(GENERATION, &inputs), Step::Rollback, ROLLBACK),
        (
            OnFailure::Uninstall,
            failure_key::uninstall_failed(GENERATION, &inputs),
            Step::Remove,
            UNINSTALL_FAILED,
        ),
    ];
    for (on_failure, key, step, operation) in rows {
        let waiting = PastFailure { key, retry_at: at(2_000), ..failed(&inputs, 3) };
        let observed = |past| Observed {
            remediation: Some(remediation(on_failure)),
            failure: Some(past),
            rollback_to: Some(1),
            ..stable(&inputs, Some(&broken))
        };
        let backoff = Wait::Backoff { step, failure: failure(), until: at(2_000) };
        assert_eq!(plan(&observed(&waiting), GENERATION), Plan::Wait(backoff));
        let due = PastFailure { retry_at: at(1_010), ..waiting.clone() };
        assert_eq!(plan(&observed(&due), GENERATION), operation);
    }
}

#[test]
fn inputs_that_were_rolled_back_are_not_tried_again() {
    let inputs = digest('a');
    let newest = rolled_back();
    let undated = RevisionState { updated: None, ..rolled_back() };
    // The last attempt before the rollback, which was at second 1000.
    let last = PastFailure { at: at(990), ..failed(&inputs, 3) };
    let since = failed(&inputs, 1);
    let since_exhausted = failed(&inputs, 3);
    let old_spec = PastFailure { attempted: failure_key::apply(Some(2), &inputs), ..last.clone() };
    // Steps that have failed since the rollback, but that are no attempts.
    let unread = past(failure_key::read(GENERATION, Some(&inputs)), failure(), 1_010);
    let unread_after = PastFailure { attempted: last.attempted.clone(), attempts: 2, ..unread.clone() };
    let unread_old_spec = past(failure_key::read(Some(2), Some(&inputs)), failure(), 1_010);
    let waits = |failure: Option<Failure>| {
        let cause = failure.map_or(RolledBackCause::FailedBefore, RolledBackCause::Failed);
        Plan::Wait(Wait::RolledBack { cause })
    };
    let base = Observed {
        remediation: Some(remediation(OnFailure::Rollback)),
        failure: Some(&last),
        rollback_to: Some(1),
        ..stable(&inputs, Some(&newest))
    };
    let other = digest('c');
    let upgrade = operate(ApplyKind::Upgrade);
    let rows = [
        ("after the rollback", base.clone(), waits(Some(failure()))),
        ("the status was lost", Observed { failure: None, ..base.clone() }, waits(None)),
        ("the policy was removed", Observed { remediation: None, ..base.clone() }, waits(Some(failure()))),
        ("suspended", Observed { suspended: true, ..base.clone() }, waits(Some(failure()))),
        ("not described yet", Observed { described: Some(3), ..base.clone() }, Plan::Describe),
        ("other inputs", Observed { inputs: InputState::Resolved(&other), ..base.clone() }, upgrade.clone()),
        (
            "retry asked before",
            Observed { retry_at: Some(at(1_000)), ..base.clone() },
            waits(Some(failure())),
        ),
        ("retry asked", Observed { retry_at: Some(at(1_001)), ..base.clone() }, upgrade.clone()),
        ("the spec was changed", Observed { failure: Some(&old_spec), ..base.clone() }, upgrade.clone()),
        ("tried since", Observed { failure: Some(&since), ..base.clone() }, upgrade),
        ("read since", Observed { failure: Some(&unread), ..base.clone() }, waits(Some(failure()))),
        (
            "read since, retries are left",
            Observed { failure: Some(&unread_after), ..base.clone() },
            waits(Some(failure())),
        ),
        (
            "the spec was changed, read since",
            Observed { failure: Some(&unread_old_spec), ..base.clone() },
            waits(Some(failure())),
        ),
        (
            "retry asked for later",
            Observed { retry_at: Some(at(1_011)), ..base.clone() },
            waits(Some(failure())),
        ),
        (
            "exhausted again",
            Observed { failure: Some(&since_exhausted), ..base.clone() },
            waits(Some(failure())),
        ),
        (
            "retry asked, exhausted again",
            Observed { failure: Some(&since_exhausted), retry_at: Some(at(1_001)), ..base.clone() },
            waits(Some(failure())),
        ),
        (
            "retry asked, but the rollback may be later",
            Observed { inventory: InventoryState::Known(Some(&undated)), retry_at: Some(at(1_001)), ..base },
            waits(Some(failure())),
        ),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn an_interrupted_removal_after_the_last_retry_is_ours() {
    let (inputs, removing) = (digest('a'), revision(ReleaseStatus::Uninstalling, Some('a')));
    let past = failed(&inputs, 3);
    let observed = |on_failure| Observed {
        remediation: Some(remediation(on_failure)),
        failure: Some(&past),
        ..stable(&inputs, Some(&removing))
    };
    assert_eq!(plan(&observed(OnFailure::Uninstall), GENERATION), UNINSTALL_FAILED);
    let other = revision(ReleaseStatus::Uninstalling, Some('b'));
    let other_inputs =
        Observed { inventory: InventoryState::Known(Some(&other)), ..observed(OnFailure::Uninstall) };
    for foreign in [observed(OnFailure::Keep), other_inputs] {
        let foreign = plan(&foreign, GENERATION);
        assert!(matches!(foreign, Plan::Wait(Wait::ForeignOperation { .. })), "{foreign:?}");
    }
}

#[test]
fn rollbacks_and_removals_in_flight() {
    use OperationPhase::{Queued, Running, Waiting};
    let (inputs, other) = (digest('a'), digest('c'));
    let broken = revision(ReleaseStatus::Failed, Some('a'));
    let past = failed(&inputs, 3);
    let base = |on_failure| Observed {
        remediation: Some(remediation(on_failure)),
        failure: Some(&past),
        rollback_to: Some(1),
        ..stable(&inputs, Some(&broken))
    };
    let during =
        |operation, phase, observed| Observed { operation: Some(InFlight { operation, phase }), ..observed };
    let rollback = |phase| during(Operation::Rollback { inputs: &inputs }, phase, base(OnFailure::Rollback));
    let uninstall = |phase| during(Operation::UninstallFailed, phase, base(OnFailure::Uninstall));
    let changed = |observed| Observed { inputs: InputState::Resolved(&other), ..observed };
    let rolling_back = Plan::Wait(Wait::Operating(OperationKind::Rollback));
    let uninstalling = Plan::Wait(Wait::Operating(OperationKind::UninstallFailed));
    let rows = [
        ("queued", rollback(Queued), rolling_back.clone()),
        ("queued, other inputs", changed(rollback(Queued)), Plan::Withdraw),
        ("running", rollback(Running), rolling_back.clone()),
        ("running, other inputs", changed(rollback(Running)), rolling_back.clone()),
        ("waiting", rollback(Waiting), rolling_back),
        ("waiting, other inputs", changed(rollback(Waiting)), Plan::Cancel(OperationKind::Rollback)),
        ("deleted", Observed { deleting: true, ..rollback(Running) }, Plan::Cancel(OperationKind::Rollback)),
        ("uninstall queued", uninstall(Queued), uninstalling.clone()),
        ("uninstall queued, other inputs", changed(uninstall(Queued)), Plan::Withdraw),
        ("uninstall running", uninstall(Running), uninstalling.clone()),
        ("uninstall running, deleted", Observed { deleting: true, ..uninstall(Running) }, uninstalling),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn a_release_that_a_tenancy_does_not_allow_is_kept_and_not_changed() {
    let (inputs, why) =
        (digest('a'), Failure::new(Category::NotAllowed, "AddonTenancy team does not allow it"));
    let current = revision(ReleaseStatus::Deployed, Some('a'));
    let outdated = revision(ReleaseStatus::Deployed, Some('b'));
    let refusal = Refusal::NotAllowed(why.clone());
    let base = |inventory| Observed { refused: Some(&refusal), ..stable(&inputs, inventory) };
    let refused = Plan::Wait(Wait::NotAllowed { failure: why.clone() });
    let queued = InFlight {
        operation: Operation::Apply { kind: ApplyKind::Upgrade, inputs: &inputs },
        phase: OperationPhase::Queued,
    };
    let rows = [
        ("install", base(None), refused.clone()),
        ("upgrade", base(Some(&outdated)), refused.clone()),
        ("up to date", base(Some(&current)), refused.clone()),
        ("unresolved", Observed { inputs: InputState::Unresolved, ..base(None) }, refused.clone()),
        ("compare", Observed { compare: true, ..base(Some(&current)) }, refused.clone()),
        ("paused", Observed { paused: true, ..base(None) }, Plan::Wait(Wait::Paused)),
        ("queued", Observed { operation: Some(queued), ..base(Some(&outdated)) }, Plan::Withdraw),
        (
            "running",
            Observed { operation: Some(upgrading(&inputs)), ..base(Some(&outdated)) },
            Plan::Wait(Wait::Operating(OperationKind::UPGRADE)),
        ),
        (
            "deleted",
            Observed { deleting: true, ..base(Some(&current)) },
            Plan::Operate(OperationKind::REMOVE),
        ),
        ("installed once", Observed { strategy: Strategy::InstallOnce, ..base(Some(&current)) }, Plan::NoOp),
    ];
    for (what, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{what}");
    }
    assert_eq!(hold_install(&base(None)), Some(Wait::NotAllowed { failure: why.clone() }));
}

/// Labels of a namespace or an AddonTenancy that cannot be read say nothing about a release: it stays Ready, and no failure is
/// counted, so that no remediation follows.
#[test]
fn a_release_of_which_it_is_not_known_whether_it_is_allowed_is_not_changed() {
    let (inputs, why) = (digest('a'), Failure::new(Category::Internal, "the labels cannot be read"));
    let unknown = Refusal::Unknown(why.clone());
    let current = revision(ReleaseStatus::Deployed, Some('a'));
    let outdated = revision(ReleaseStatus::Deployed, Some('b'));
    let broken = revision(ReleaseStatus::Failed, Some('a'));
    let foreign = revision(ReleaseStatus::Deployed, None);
    let exhausted = failed(&inputs, 9);
    let base = |inventory| Observed { refused: Some(&unknown), ..stable(&inputs, inventory) };
    let held = Plan::Wait(Wait::AwaitingRules { failure: why.clone() });
    let unresolved = Plan::Wait(Wait::RulesUnknown { failure: why.clone() });
    let during = |phase| {
        let operation = Operation::Apply { kind: ApplyKind::Upgrade, inputs: &inputs };
        let operation = Some(InFlight { operation, phase });
        Observed { operation, inputs: InputState::Unresolved, ..base(Some(&outdated)) }
    };
    let remediated = |on_failure| Observed {
        remediation: Some(remediation(on_failure)),
        failure: Some(&exhausted),
        rollback_to: Some(1),
        ..base(Some(&broken))
    };
    let rows = [
        ("up to date", base(Some(&current)), Plan::NoOp),
        ("compare", Observed { compare: true, ..base(Some(&current)) }, Plan::NoOp),
        ("install", base(None), held.clone()),
        ("upgrade", base(Some(&outdated)), held.clone()),
        ("roll back", remediated(OnFailure::Rollback), held.clone()),
        ("uninstall", remediated(OnFailure::Uninstall), held),
        ("adopt", base(Some(&foreign)), unresolved.clone()),
        ("unresolved", Observed { inputs: InputState::Unresolved, ..base(Some(&current)) }, unresolved),
        (
            "another package is not downloaded during an operation",
            during(OperationPhase::Waiting),
            Plan::Wait(Wait::Operating(OperationKind::UPGRADE)),
        ),
        (
            "deleted",
            Observed { deleting: true, ..base(Some(&current)) },
            Plan::Operate(OperationKind::REMOVE),
        ),
    ];
    for (what, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{what}");
    }
}
