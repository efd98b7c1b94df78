mod compare_and_test;
mod policy;
mod requested_rollback;

use super::{
    fixtures::{at, digest, revision, stable},
    *,
};
use crate::{
    failure::Category,
    release::{RequestedRollback, RollbackOrigin},
};

const GENERATION: Option<i64> = Some(3);

/// A failure of the step with this key at second 1005, which is retried at `retry_at`.
fn past(key: String, failure: Failure, retry_at: i64) -> PastFailure {
    PastFailure {
        attempted: key.clone(),
        crashed: key.clone(),
        key,
        failure,
        retry_at: at(retry_at),
        at: at(1_005),
        attempts: 1,
        crashes: 0,
    }
}

fn upgrading(inputs: &InputDigest) -> InFlight<'_> {
    InFlight {
        operation: Operation::Apply { kind: ApplyKind::Upgrade, inputs },
        phase: OperationPhase::Running,
    }
}

#[test]
fn the_newest_revision_decides() {
    use ApplyKind::{Install, Recover, Upgrade};
    use ReleaseStatus as S;
    let inputs = digest('a');
    let foreign_pending = |status| Plan::Wait(Wait::ForeignOperation { status, until: at(1_000 + 10 * 60) });
    let rows = [
        ("absent", None, operate(Install)),
        ("own, same inputs", Some(revision(S::Deployed, Some('a'))), Plan::NoOp),
        ("own, other inputs", Some(revision(S::Deployed, Some('b'))), operate(Upgrade)),
        ("by another client", Some(revision(S::Deployed, None)), Plan::Adopt { revision: 4 }),
        ("own, failed", Some(revision(S::Failed, Some('a'))), operate(Upgrade)),
        ("by another client, failed", Some(revision(S::Failed, None)), operate(Upgrade)),
        ("superseded on top", Some(revision(S::Superseded, None)), operate(Upgrade)),
        ("unknown status", Some(revision(S::Unknown, None)), operate(Upgrade)),
        ("history kept", Some(revision(S::Uninstalled, Some('a'))), operate(Install)),
        ("own install interrupted", Some(revision(S::PendingInstall, Some('a'))), operate(Recover)),
        ("own upgrade interrupted", Some(revision(S::PendingUpgrade, Some('b'))), operate(Recover)),
        ("own rollback interrupted", Some(revision(S::PendingRollback, Some('b'))), operate(Recover)),
        (
            "own, being removed by another client",
            Some(revision(S::Uninstalling, Some('a'))),
            foreign_pending(S::Uninstalling),
        ),
        (
            "upgrade by another client",
            Some(revision(S::PendingUpgrade, None)),
            foreign_pending(S::PendingUpgrade),
        ),
        (
            "removal by another client",
            Some(revision(S::Uninstalling, None)),
            foreign_pending(S::Uninstalling),
        ),
    ];
    for (name, newest, expected) in rows {
        assert_eq!(plan(&stable(&inputs, newest.as_ref()), GENERATION), expected, "{name}");
    }
}

#[test]
fn a_pending_operation_of_another_client_expires() {
    let inputs = digest('a');
    let pending = revision(ReleaseStatus::PendingUpgrade, None);
    let status = pending.status;
    let waits = |until| Plan::Wait(Wait::ForeignOperation { status, until: at(until) });
    let takes_over = || operate(ApplyKind::Recover);
    let minutes = |minutes: i64| 1_000 + minutes * 60;
    // The time in the record, since when it is unchanged, the timeout in minutes, and now.
    let rows = [
        ("recent", Some(1_000), Some(1_000), 10, minutes(10) - 1, waits(minutes(10))),
        ("unchanged for ten minutes", Some(1_000), Some(1_000), 10, minutes(10), takes_over()),
        ("short timeout", Some(1_000), Some(1_000), 1, minutes(10) - 1, waits(minutes(10))),
        ("long timeout", Some(1_000), Some(1_000), 45, minutes(45) - 1, waits(minutes(45))),
        ("unchanged for a long timeout", Some(1_000), Some(1_000), 45, minutes(45), takes_over()),
        ("changed since", Some(1_000), Some(minutes(8)), 10, minutes(17), waits(minutes(18))),
        ("old, but first seen now", Some(0), Some(minutes(60)), 10, minutes(60), waits(minutes(70))),
        ("written by a clock that is fast", Some(minutes(99)), Some(1_000), 10, minutes(10), takes_over()),
        ("without a time", None, Some(1_000), 10, minutes(10), takes_over()),
        ("not seen yet", Some(1_000), None, 10, minutes(60), waits(minutes(70))),
    ];
    for (name, updated, unchanged_since, timeout, now, expected) in rows {
        let pending = RevisionState { updated: updated.map(at), ..pending.clone() };
        let observed = Observed {
            unchanged_since: unchanged_since.map(at),
            timeout: Duration::from_mins(timeout),
            now: at(now),
            ..stable(&inputs, Some(&pending))
        };
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn a_release_that_differs_is_upgraded_not_adopted_again() {
    let inputs = digest('a');
    let foreign = revision(ReleaseStatus::Deployed, None);
    let read = Observed { differs: Some(4), ..stable(&inputs, Some(&foreign)) };
    assert_eq!(plan(&read, GENERATION), operate(ApplyKind::Upgrade));
    let outdated = Observed { differs: Some(3), ..stable(&inputs, Some(&foreign)) };
    assert_eq!(plan(&outdated, GENERATION), Plan::Adopt { revision: 4 });
}

#[test]
fn a_release_that_the_status_does_not_describe_is_read() {
    let inputs = digest('a');
    let deployed = revision(ReleaseStatus::Deployed, Some('a'));
    for described in [None, Some(3)] {
        let observed = Observed { described, ..stable(&inputs, Some(&deployed)) };
        assert_eq!(plan(&observed, GENERATION), Plan::Describe);
    }
}

#[test]
fn nothing_is_done_without_a_complete_observation() {
    let inputs = digest('a');
    let unreachable = Failure::new(Category::Unreachable, "no route");
    let base = || stable(&inputs, None);
    let rows = [
        (Observed { paused: true, ..base() }, Plan::Wait(Wait::Paused)),
        (Observed { cluster: ClusterState::Missing, ..base() }, Plan::Wait(Wait::ClusterMissing)),
        (Observed { cluster: ClusterState::Deleting, ..base() }, Plan::Wait(Wait::ClusterDeleting)),
        (
            Observed { cluster: ClusterState::ControlPlaneNotInitialized, ..base() },
            Plan::Wait(Wait::ControlPlaneNotInitialized),
        ),
        (Observed { inventory: InventoryState::Loading, ..base() }, Plan::Wait(Wait::InventoryLoading)),
        (
            Observed { inventory: InventoryState::Unavailable(&unreachable), ..base() },
            Plan::Wait(Wait::Unavailable(unreachable.clone())),
        ),
        (Observed { inputs: InputState::Unresolved, ..base() }, Plan::Resolve),
        (
            Observed { operation: Some(upgrading(&inputs)), ..base() },
            Plan::Wait(Wait::Operating(OperationKind::Apply(ApplyKind::Upgrade))),
        ),
    ];
    for (observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected);
    }
}

#[test]
fn backoff_applies_to_the_same_step_only() {
    let (inputs, newest) = (digest('a'), revision(ReleaseStatus::Failed, Some('a')));
    let failed =
        |key: String, retry_at| past(key, Failure::new(Category::NotReady, "still starting"), retry_at);
    let backoff = |step, past: &PastFailure| {
        Plan::Wait(Wait::Backoff { step, failure: past.failure.clone(), until: past.retry_at })
    };
    let same = failed(failure_key::apply(GENERATION, &inputs), 2_000);
    let other = failed(failure_key::apply(GENERATION, &digest('b')), 2_000);
    let due = failed(failure_key::apply(GENERATION, &inputs), 1_010);
    let upgrade = operate(ApplyKind::Upgrade);
    for (past, expected) in [(&same, backoff(Step::Apply, &same)), (&other, upgrade.clone()), (&due, upgrade)]
    {
        let observed = Observed { failure: Some(past), ..stable(&inputs, Some(&newest)) };
        assert_eq!(plan(&observed, GENERATION), expected, "{}", past.key);
    }
    let changed = Observed { failure: Some(&same), ..stable(&inputs, Some(&newest)) };
    assert_eq!(plan(&changed, Some(4)), operate(ApplyKind::Upgrade), "a changed spec is tried at once");
    let foreign = revision(ReleaseStatus::Deployed, None);
    let read = failed(failure_key::read(GENERATION, Some(&inputs)), 2_000);
    let unread = Observed { failure: Some(&read), ..stable(&inputs, Some(&foreign)) };
    let held = backoff(Step::Read, &read);
    assert_eq!(plan(&unread, GENERATION), held, "a failed read is not retried at once");
    let unresolved = failed(failure_key::resolve(GENERATION), 2_000);
    let observed =
        Observed { failure: Some(&unresolved), inputs: InputState::Unresolved, ..stable(&inputs, None) };
    assert_eq!(plan(&observed, GENERATION), backoff(Step::Resolve, &unresolved));
    assert_eq!(plan(&observed, Some(4)), Plan::Resolve, "a changed spec is resolved at once");
    let unprepared = Observed { inputs: InputState::Resolved(&inputs), ..observed };
    let held = backoff(Step::Resolve, &unresolved);
    assert_eq!(plan(&unprepared, GENERATION), held, "the package could not be read again to apply it");
    assert_eq!(plan(&unprepared, Some(4)), operate(ApplyKind::Install));
}

#[test]
fn an_operation_that_waits_with_outdated_inputs_is_canceled() {
    let (inputs, old) = (digest('a'), digest('b'));
    let upgrade = |waiting, inputs| InFlight {
        phase: if waiting { OperationPhase::Waiting } else { OperationPhase::Running },
        ..upgrading(inputs)
    };
    let cancel = Plan::Cancel(OperationKind::UPGRADE);
    let waits = Plan::Wait(Wait::Operating(OperationKind::Apply(ApplyKind::Upgrade)));
    let during = |operation| Observed { operation: Some(operation), ..stable(&inputs, None) };
    let rows = [
        ("still writing", during(upgrade(false, &old)), waits.clone()),
        ("waiting with current inputs", during(upgrade(true, &inputs)), waits.clone()),
        ("waiting with outdated inputs", during(upgrade(true, &old)), cancel),
        ("paused", Observed { paused: true, ..during(upgrade(true, &old)) }, waits),
        (
            "the spec changed",
            Observed { inputs: InputState::Unresolved, ..during(upgrade(true, &old)) },
            Plan::Resolve,
        ),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn a_queued_operation_is_withdrawn_unless_it_would_be_started_now() {
    let (inputs, old) = (digest('a'), digest('b'));
    let deployed = revision(ReleaseStatus::Deployed, Some('b'));
    let fixed = revision(ReleaseStatus::Deployed, Some('a'));
    let unreachable = Failure::new(Category::Unreachable, "no route");
    let unmet = ["calico".to_owned()];
    let queued = |operation| Some(InFlight { operation, phase: OperationPhase::Queued });
    let upgrade = |inputs| queued(Operation::Apply { kind: ApplyKind::Upgrade, inputs });
    let base = Observed { operation: upgrade(&inputs), ..stable(&inputs, Some(&deployed)) };
    let outdated = Observed { operation: upgrade(&old), ..base.clone() };
    let waits = Plan::Wait(Wait::Operating(OperationKind::UPGRADE));
    let removal = Observed { deleting: true, operation: queued(Operation::Remove), ..base.clone() };
    let rows = [
        ("current", base.clone(), waits),
        ("other inputs", outdated.clone(), Plan::Withdraw),
        ("inputs unknown", Observed { inputs: InputState::Unresolved, ..outdated }, Plan::Resolve),
        ("paused", Observed { paused: true, ..base.clone() }, Plan::Withdraw),
        ("placement paused", Observed { placement_paused: true, ..base.clone() }, Plan::Withdraw),
        ("placement changing", Observed { placement_changing: true, ..base.clone() }, Plan::Withdraw),
        ("deleting", Observed { deleting: true, ..base.clone() }, Plan::Withdraw),
        (
            "up to date meanwhile",
            Observed { inventory: InventoryState::Known(Some(&fixed)), ..base.clone() },
            Plan::Withdraw,
        ),
        (
            "removed meanwhile",
            Observed { inventory: InventoryState::Known(None), ..base.clone() },
            Plan::Withdraw,
        ),
        (
            "unreachable",
            Observed { inventory: InventoryState::Unavailable(&unreachable), ..base.clone() },
            Plan::Withdraw,
        ),
        ("a dependency is not ready", Observed { unmet: &unmet, ..base }, Plan::Withdraw),
        ("removal", removal.clone(), Plan::Wait(Wait::Operating(OperationKind::Remove))),
        ("removal, paused", Observed { paused: true, ..removal }, Plan::Withdraw),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn a_paused_placement_starts_nothing_but_removals() {
    let (inputs, deployed) = (digest('a'), revision(ReleaseStatus::Deployed, Some('b')));
    let pending = revision(ReleaseStatus::PendingUpgrade, Some('a'));
    let current = revision(ReleaseStatus::Deployed, Some('a'));
    let paused = |inventory| Observed { placement_paused: true, ..stable(&inputs, inventory) };
    let rows = [
        ("install", paused(None), Plan::Wait(Wait::Paused)),
        ("upgrade", paused(Some(&deployed)), Plan::Wait(Wait::Paused)),
        ("recover", paused(Some(&pending)), Plan::Wait(Wait::Paused)),
        ("up to date", paused(Some(&current)), Plan::NoOp),
        (
            "removal",
            Observed { deleting: true, ..paused(Some(&deployed)) },
            Plan::Operate(OperationKind::Remove),
        ),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn an_object_that_is_about_to_change_waits_for_its_placement() {
    let (inputs, deployed) = (digest('a'), revision(ReleaseStatus::Deployed, Some('b')));
    let changing = Observed { placement_changing: true, ..stable(&inputs, Some(&deployed)) };
    assert_eq!(plan(&changing, GENERATION), Plan::Wait(Wait::PlacementChanging));
    let deleting = Observed { deleting: true, ..changing };
    assert_eq!(plan(&deleting, GENERATION), Plan::Operate(OperationKind::Remove));
}

#[test]
fn absence_is_confirmed_before_the_finalizer_is_removed() {
    let inputs = digest('a');
    let deleting = Observed { deleting: true, absence_confirmed: false, ..stable(&inputs, None) };
    assert_eq!(plan(&deleting, GENERATION), Plan::ConfirmAbsence);
    let failed = past(failure_key::remove(), Failure::new(Category::Timeout, "no answer"), 2_000);
    let again = Observed { failure: Some(&failed), ..deleting };
    assert!(matches!(plan(&again, GENERATION), Plan::Wait(Wait::Backoff { step: Step::Remove, .. })));
}

#[test]
fn a_release_of_another_object_is_left_unchanged() {
    let (inputs, deployed) = (digest('a'), revision(ReleaseStatus::Deployed, Some('b')));
    let taken = Collision::Taken { by: "fleet/older".to_owned(), deleting: false };
    let newer = Observed { collision: &taken, ..stable(&inputs, Some(&deployed)) };
    assert_eq!(plan(&newer, GENERATION), Plan::Wait(Wait::Taken { by: "fleet/older".to_owned() }));
    let deleting = Observed { deleting: true, ..newer };
    assert_eq!(plan(&deleting, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::Taken));
    let contested = Collision::Contested { by: "fleet/newer".to_owned() };
    let older = Observed { collision: &contested, ..stable(&inputs, Some(&deployed)) };
    assert_eq!(plan(&older, GENERATION), operate(ApplyKind::Upgrade));
}

#[test]
fn install_once_installs_once() {
    let inputs = digest('a');
    let drifted = revision(ReleaseStatus::Deployed, None);
    let once = |installed_before, inventory| Observed {
        strategy: Strategy::InstallOnce,
        installed_before,
        ..stable(&inputs, inventory)
    };
    assert_eq!(plan(&once(false, None), GENERATION), operate(ApplyKind::Install));
    assert_eq!(plan(&once(true, None), GENERATION), Plan::NoOp);
    assert_eq!(plan(&once(true, Some(&drifted)), GENERATION), Plan::NoOp);
    let gone = Observed { deleting: true, ..once(true, Some(&drifted)) };
    assert_eq!(plan(&gone, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::InstallOnce));
}

#[test]
fn a_release_that_is_installed_once_is_described() {
    use ReleaseStatus as S;
    let inputs = digest('a');
    let failure = |key| past(key, Failure::new(Category::Timeout, "no answer"), 2_000);
    let unread = failure(failure_key::read(GENERATION, None));
    let unread_inputs = failure(failure_key::read(GENERATION, Some(&inputs)));
    let backoff = Plan::Wait(Wait::Backoff {
        step: Step::Read,
        failure: unread.failure.clone(),
        until: unread.retry_at,
    });
    let (known, unknown) = (|| InputState::Resolved(&inputs), || InputState::Unresolved);
    // The status of revision 4, the revision that the status describes, the inputs and the last failure.
    let rows = [
        ("described", S::Deployed, Some(4), unknown(), None, Plan::NoOp),
        ("upgraded by another client", S::Deployed, Some(3), unknown(), None, Plan::Describe),
        ("upgraded, inputs known", S::Deployed, Some(3), known(), None, Plan::Describe),
        ("never described", S::Deployed, None, unknown(), None, Plan::Describe),
        ("not read", S::Deployed, Some(3), unknown(), Some(&unread), backoff.clone()),
        ("not read, inputs known", S::Deployed, Some(3), known(), Some(&unread_inputs), backoff),
        ("being upgraded", S::PendingUpgrade, Some(3), unknown(), None, Plan::NoOp),
        ("upgrade failed", S::Failed, Some(3), unknown(), None, Plan::NoOp),
        ("removed", S::Uninstalled, Some(3), unknown(), None, Plan::NoOp),
    ];
    for (name, status, described, inputs_known, failure, expected) in rows {
        let newest = revision(status, None);
        let observed = Observed {
            strategy: Strategy::InstallOnce,
            described,
            inputs: inputs_known,
            failure,
            ..stable(&inputs, Some(&newest))
        };
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn a_deleted_object_removes_its_release() {
    let inputs = digest('a');
    let deployed = revision(ReleaseStatus::Deployed, Some('a'));
    let pending = revision(ReleaseStatus::PendingUpgrade, Some('a'));
    let kept = revision(ReleaseStatus::Uninstalled, Some('a'));
    let unreachable = Failure::new(Category::Unreachable, "no route");
    let base = |inventory| Observed { deleting: true, ..stable(&inputs, inventory) };
    let remove = Plan::Operate(OperationKind::Remove);
    let rows = [
        ("deployed", base(Some(&deployed)), remove.clone()),
        ("pending", base(Some(&pending)), remove),
        ("absent", base(None), Plan::RemoveFinalizer(RemoveFinalizer::Removed)),
        ("history kept", base(Some(&kept)), Plan::RemoveFinalizer(RemoveFinalizer::Removed)),
        ("paused", Observed { paused: true, ..base(Some(&deployed)) }, Plan::Wait(Wait::Paused)),
        // A paused object is not changed, because it may be on its way to another management cluster.
        (
            "paused, and the cluster is being deleted",
            Observed { paused: true, cluster: ClusterState::Deleting, ..base(Some(&deployed)) },
            Plan::Wait(Wait::Paused),
        ),
        (
            "paused, and the cluster does not exist",
            Observed { paused: true, cluster: ClusterState::Missing, ..base(None) },
            Plan::Wait(Wait::Paused),
        ),
        (
            "moved",
            Observed { moved: true, ..base(Some(&deployed)) },
            Plan::RemoveFinalizer(RemoveFinalizer::Moved),
        ),
        (
            "moved and paused",
            Observed { moved: true, paused: true, ..base(Some(&deployed)) },
            Plan::RemoveFinalizer(RemoveFinalizer::Moved),
        ),
        (
            "moved while an upgrade is running",
            Observed { moved: true, operation: Some(upgrading(&inputs)), ..base(Some(&deployed)) },
            Plan::Cancel(OperationKind::UPGRADE),
        ),
        (
            "cluster does not exist",
            Observed { cluster: ClusterState::Missing, ..base(None) },
            Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone),
        ),
        (
            "cluster is being deleted",
            Observed { cluster: ClusterState::Deleting, ..base(Some(&deployed)) },
            Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone),
        ),
        (
            "control plane never initialized",
            Observed {
                cluster: ClusterState::ControlPlaneNotInitialized,
                installed_before: false,
                inventory: InventoryState::Loading,
                ..base(None)
            },
            Plan::RemoveFinalizer(RemoveFinalizer::Removed),
        ),
        (
            "inventory loading",
            Observed { inventory: InventoryState::Loading, ..base(None) },
            Plan::Wait(Wait::InventoryLoading),
        ),
        (
            "unreachable",
            Observed { inventory: InventoryState::Unavailable(&unreachable), ..base(None) },
            Plan::Wait(Wait::Unavailable(unreachable.clone())),
        ),
        (
            "an upgrade is running",
            Observed { operation: Some(upgrading(&inputs)), ..base(Some(&deployed)) },
            Plan::Cancel(OperationKind::UPGRADE),
        ),
        (
            "the removal is running",
            Observed {
                operation: Some(InFlight { operation: Operation::Remove, phase: OperationPhase::Running }),
                ..base(Some(&deployed))
            },
            Plan::Wait(Wait::Operating(OperationKind::Remove)),
        ),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
    let past = past(failure_key::remove(), unreachable.clone(), 2_000);
    let failed = Observed { failure: Some(&past), ..base(Some(&deployed)) };
    assert_eq!(
        plan(&failed, GENERATION),
        Plan::Wait(Wait::Backoff { step: Step::Remove, failure: unreachable, until: at(2_000) })
    );
}

#[test]
fn dependencies_are_installed_first_and_removed_last() {
    let (inputs, base) = (digest('a'), ["base".to_owned()]);
    let deployed = revision(ReleaseStatus::Deployed, Some('a'));
    let old = revision(ReleaseStatus::Deployed, Some('b'));
    let stuck = revision(ReleaseStatus::PendingUpgrade, Some('b'));
    let on = base.to_vec();
    let rows = [
        ("not installed", None, Plan::Wait(Wait::Dependencies { on: on.clone() })),
        ("outdated", Some(&old), Plan::Wait(Wait::Dependencies { on: on.clone() })),
        ("up to date", Some(&deployed), Plan::NoOp),
        ("interrupted", Some(&stuck), operate(ApplyKind::Recover)),
    ];
    for (name, inventory, expected) in rows {
        let observed = Observed { unmet: &base, ..stable(&inputs, inventory) };
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
    let needed = Observed { deleting: true, needed_by: &base, ..stable(&inputs, Some(&deployed)) };
    assert_eq!(plan(&needed, GENERATION), Plan::Wait(Wait::Dependents { on }));
    let gone = Observed { deleting: true, needed_by: &base, ..stable(&inputs, None) };
    assert_eq!(
        plan(&gone, GENERATION),
        Plan::RemoveFinalizer(RemoveFinalizer::Removed),
        "dependents do not matter for a release that does not exist"
    );
    let deleting = Observed { cluster: ClusterState::Deleting, ..needed };
    assert_eq!(
        plan(&deleting, GENERATION),
        Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone),
        "the cluster is deleted with all releases"
    );
}

#[test]
fn a_release_with_external_resources_is_removed_before_its_cluster() {
    let (inputs, deployed) = (digest('a'), revision(ReleaseStatus::Deployed, Some('a')));
    let deleting = Observed {
        deleting: true,
        cluster: ClusterState::Deleting,
        remove_with_cluster: true,
        ..stable(&inputs, Some(&deployed))
    };
    assert_eq!(plan(&deleting, GENERATION), Plan::Operate(OperationKind::Remove));
    let suspended = Observed { suspended: true, ..deleting.clone() };
    assert_eq!(plan(&suspended, GENERATION), Plan::Wait(Wait::Suspended), "the deletion waits");
    for late in [deleting.clone(), suspended] {
        let late = Observed { remove_with_cluster: false, ..late };
        assert_eq!(plan(&late, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone));
    }
    let gone = Observed { cluster: ClusterState::Missing, ..deleting };
    assert_eq!(plan(&gone, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone));
}

#[test]
fn a_stalled_release_is_resolved_again_after_an_hour_but_not_applied() {
    let inputs = digest('a');
    let crashed = |key| {
        let failure = Failure::new(Category::ToolCrashed, "out of memory");
        PastFailure { crashes: 3, ..past(key, failure, 1_010) }
    };
    let planned = |past: &PastFailure, inputs: InputState<'_>, now| {
        plan(
            &Observed { failure: Some(past), inputs, now: at(now), ..stable(&digest('a'), None) },
            GENERATION,
        )
    };
    let is_stalled = |plan: &Plan| matches!(plan, Plan::Wait(Wait::Stalled { .. }));
    let resolve = crashed(failure_key::resolve(GENERATION));
    assert!(is_stalled(&planned(&resolve, InputState::Unresolved, 1_005 + 3_599)));
    assert_eq!(planned(&resolve, InputState::Unresolved, 1_005 + 3_600), Plan::Resolve);
    let apply = crashed(failure_key::apply(GENERATION, &inputs));
    assert!(is_stalled(&planned(&apply, InputState::Resolved(&inputs), 1_005 + 36_000)));
}
