use super::*;
use crate::{digest::InputMark, failure::Category};

const GENERATION: Option<i64> = Some(3);

fn digest(letter: char) -> InputDigest {
    InputDigest::parse(&letter.to_string().repeat(40)).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn seen(status: ReleaseStatus, mark: Option<char>) -> Seen {
    Seen {
        revision: 4,
        status,
        mark: mark.map(|letter| InputMark { digest: digest(letter), revision: 4 }),
        updated: Some(at(1_000)),
    }
}

/// A healthy cluster, a resolved spec, nothing deleting on.
fn quiet<'a>(inputs: &'a InputDigest, inventory: Option<&'a Seen>) -> Observed<'a> {
    Observed {
        deleting: false,
        moved: false,
        paused: false,
        cluster: ClusterState::Available,
        strategy: Strategy::Continuous,
        collision: &Collision::None,
        unmet: &[],
        needed_by: &[],
        remove_with_cluster: false,
        installed_before: true,
        inventory: InventoryState::Known(inventory),
        inputs: InputState::Resolved(inputs),
        operation: None,
        described: Some(4),
        differs: None,
        failure: None,
        now: at(1_010),
    }
}

fn upgrading(inputs: &InputDigest) -> InFlight<'_> {
    InFlight { operation: Operation::Apply { kind: ApplyKind::Upgrade, inputs }, waiting: false }
}

#[test]
fn what_is_there_decides() {
    use ApplyKind::{Install, Recover, Upgrade};
    use ReleaseStatus as S;
    let wanted = digest('a');
    let foreign_pending = |status| Plan::Wait(Wait::ForeignOperation { status, until: at(1_000 + 15 * 60) });
    let rows = [
        ("absent", None, operate(Install)),
        ("ours, same inputs", Some(seen(S::Deployed, Some('a'))), Plan::NoOp),
        ("ours, other inputs", Some(seen(S::Deployed, Some('b'))), operate(Upgrade)),
        ("someone else's", Some(seen(S::Deployed, None)), Plan::Adopt { revision: 4 }),
        ("ours, failed", Some(seen(S::Failed, Some('a'))), operate(Upgrade)),
        ("someone else's, failed", Some(seen(S::Failed, None)), operate(Upgrade)),
        ("superseded on top", Some(seen(S::Superseded, None)), operate(Upgrade)),
        ("unknown word", Some(seen(S::Unknown, None)), operate(Upgrade)),
        ("history kept", Some(seen(S::Uninstalled, Some('a'))), operate(Install)),
        ("our install died", Some(seen(S::PendingInstall, Some('a'))), operate(Recover)),
        ("our upgrade died", Some(seen(S::PendingUpgrade, Some('b'))), operate(Recover)),
        ("our rollback died", Some(seen(S::PendingRollback, Some('b'))), operate(Recover)),
        (
            "ours, being removed by hand",
            Some(seen(S::Uninstalling, Some('a'))),
            foreign_pending(S::Uninstalling),
        ),
        ("another's upgrade", Some(seen(S::PendingUpgrade, None)), foreign_pending(S::PendingUpgrade)),
        ("another's removal", Some(seen(S::Uninstalling, None)), foreign_pending(S::Uninstalling)),
    ];
    for (name, there, expected) in rows {
        assert_eq!(plan(&quiet(&wanted, there.as_ref()), GENERATION), expected, "{name}");
    }
}

#[test]
fn another_s_operation_is_given_up_on_in_the_end() {
    let wanted = digest('a');
    let pending = seen(ReleaseStatus::PendingUpgrade, None);
    let late = Observed { now: at(1_000 + 15 * 60), ..quiet(&wanted, Some(&pending)) };
    assert_eq!(plan(&late, GENERATION), operate(ApplyKind::Recover));
    let undated = Seen { updated: None, ..pending };
    assert_eq!(plan(&quiet(&wanted, Some(&undated)), GENERATION), operate(ApplyKind::Recover));
}

#[test]
fn a_release_that_differs_is_upgraded_not_adopted_again() {
    let wanted = digest('a');
    let foreign = seen(ReleaseStatus::Deployed, None);
    let read = Observed { differs: Some(4), ..quiet(&wanted, Some(&foreign)) };
    assert_eq!(plan(&read, GENERATION), operate(ApplyKind::Upgrade));
    let outdated = Observed { differs: Some(3), ..quiet(&wanted, Some(&foreign)) };
    assert_eq!(plan(&outdated, GENERATION), Plan::Adopt { revision: 4 });
}

#[test]
fn lost_details_are_read_once() {
    let wanted = digest('a');
    let there = seen(ReleaseStatus::Deployed, Some('a'));
    for described in [None, Some(3)] {
        let observed = Observed { described, ..quiet(&wanted, Some(&there)) };
        assert_eq!(plan(&observed, GENERATION), Plan::Describe);
    }
}

#[test]
fn nothing_is_done_before_it_can_be_known() {
    let wanted = digest('a');
    let unreachable = Failure::new(Category::Unreachable, "no route");
    let base = || quiet(&wanted, None);
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
            Observed { operation: Some(upgrading(&wanted)), ..base() },
            Plan::Wait(Wait::Operating(OperationKind::Apply(ApplyKind::Upgrade))),
        ),
    ];
    for (observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected);
    }
}

#[test]
fn a_failure_holds_back_the_same_thing_only() {
    let (wanted, there) = (digest('a'), seen(ReleaseStatus::Failed, Some('a')));
    let failed = |key: String, retry_at| PastFailure {
        key,
        failure: Failure::new(Category::NotReady, "still starting"),
        retry_at: at(retry_at),
    };
    let backoff = |step, past: &PastFailure| {
        Plan::Wait(Wait::Backoff { step, failure: past.failure.clone(), until: past.retry_at })
    };
    let same = failed(failure_key::apply(GENERATION, &wanted), 2_000);
    let other = failed(failure_key::apply(GENERATION, &digest('b')), 2_000);
    let due = failed(failure_key::apply(GENERATION, &wanted), 1_010);
    let upgrade = operate(ApplyKind::Upgrade);
    for (past, expected) in [(&same, backoff(Step::Apply, &same)), (&other, upgrade.clone()), (&due, upgrade)]
    {
        let observed = Observed { failure: Some(past), ..quiet(&wanted, Some(&there)) };
        assert_eq!(plan(&observed, GENERATION), expected, "{}", past.key);
    }
    let changed = Observed { failure: Some(&same), ..quiet(&wanted, Some(&there)) };
    assert_eq!(plan(&changed, Some(4)), operate(ApplyKind::Upgrade), "a changed spec is tried at once");
    let foreign = seen(ReleaseStatus::Deployed, None);
    let read = failed(failure_key::read(GENERATION, &wanted), 2_000);
    let unread = Observed { failure: Some(&read), ..quiet(&wanted, Some(&foreign)) };
    let held = backoff(Step::Read, &read);
    assert_eq!(plan(&unread, GENERATION), held, "a read that failed is not repeated at once");
    let unresolved = failed(failure_key::resolve(GENERATION), 2_000);
    let observed =
        Observed { failure: Some(&unresolved), inputs: InputState::Unresolved, ..quiet(&wanted, None) };
    assert_eq!(plan(&observed, GENERATION), backoff(Step::Resolve, &unresolved));
    assert_eq!(plan(&observed, Some(4)), Plan::Resolve, "a changed spec is looked at again at once");
}

#[test]
fn an_operation_that_waits_for_what_is_not_wanted_any_more_is_stopped() {
    let (wanted, old) = (digest('a'), digest('b'));
    let upgrade = |waiting, inputs| InFlight { waiting, ..upgrading(inputs) };
    let waits = Plan::Wait(Wait::Operating(OperationKind::Apply(ApplyKind::Upgrade)));
    let during = |operation| Observed { operation: Some(operation), ..quiet(&wanted, None) };
    let rows = [
        ("still writing", during(upgrade(false, &old)), waits.clone()),
        ("waiting for what is wanted", during(upgrade(true, &wanted)), waits.clone()),
        ("waiting for something else", during(upgrade(true, &old)), Plan::Cancel),
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
fn a_release_of_another_object_is_left_alone() {
    let (wanted, there) = (digest('a'), seen(ReleaseStatus::Deployed, Some('b')));
    let taken = Collision::Taken { by: "fleet/older".to_owned(), deleting: false };
    let younger = Observed { collision: &taken, ..quiet(&wanted, Some(&there)) };
    assert_eq!(plan(&younger, GENERATION), Plan::Wait(Wait::Taken { by: "fleet/older".to_owned() }));
    let deleting = Observed { deleting: true, ..younger };
    assert_eq!(plan(&deleting, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::Taken));
    let contested = Collision::Contested { by: "fleet/younger".to_owned() };
    let older = Observed { collision: &contested, ..quiet(&wanted, Some(&there)) };
    assert_eq!(plan(&older, GENERATION), operate(ApplyKind::Upgrade));
}

#[test]
fn install_once_installs_once() {
    let wanted = digest('a');
    let drifted = seen(ReleaseStatus::Deployed, None);
    let once = |installed_before, inventory| Observed {
        strategy: Strategy::InstallOnce,
        installed_before,
        ..quiet(&wanted, inventory)
    };
    assert_eq!(plan(&once(false, None), GENERATION), operate(ApplyKind::Install));
    assert_eq!(plan(&once(true, None), GENERATION), Plan::NoOp);
    assert_eq!(plan(&once(true, Some(&drifted)), GENERATION), Plan::NoOp);
    let gone = Observed { deleting: true, ..once(true, Some(&drifted)) };
    assert_eq!(plan(&gone, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::InstallOnce));
}

#[test]
fn deletion() {
    let wanted = digest('a');
    let there = seen(ReleaseStatus::Deployed, Some('a'));
    let pending = seen(ReleaseStatus::PendingUpgrade, Some('a'));
    let kept = seen(ReleaseStatus::Uninstalled, Some('a'));
    let unreachable = Failure::new(Category::Unreachable, "no route");
    let base = |inventory| Observed { deleting: true, ..quiet(&wanted, inventory) };
    let remove = Plan::Operate(OperationKind::Remove);
    let rows = [
        ("there", base(Some(&there)), remove.clone()),
        ("pending", base(Some(&pending)), remove),
        ("absent", base(None), Plan::RemoveFinalizer(RemoveFinalizer::Removed)),
        ("history kept", base(Some(&kept)), Plan::RemoveFinalizer(RemoveFinalizer::Removed)),
        ("paused", Observed { paused: true, ..base(Some(&there)) }, Plan::Wait(Wait::Paused)),
        (
            "moved",
            Observed { moved: true, ..base(Some(&there)) },
            Plan::RemoveFinalizer(RemoveFinalizer::Moved),
        ),
        (
            "moved and paused",
            Observed { moved: true, paused: true, ..base(Some(&there)) },
            Plan::RemoveFinalizer(RemoveFinalizer::Moved),
        ),
        (
            "moved while an upgrade is running",
            Observed { moved: true, operation: Some(upgrading(&wanted)), ..base(Some(&there)) },
            Plan::Cancel,
        ),
        (
            "cluster gone",
            Observed { cluster: ClusterState::Missing, ..base(None) },
            Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone),
        ),
        (
            "cluster deleting",
            Observed { cluster: ClusterState::Deleting, ..base(Some(&there)) },
            Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone),
        ),
        (
            "cluster never came up",
            Observed {
                cluster: ClusterState::ControlPlaneNotInitialized,
                installed_before: false,
                inventory: InventoryState::Loading,
                ..base(None)
            },
            Plan::RemoveFinalizer(RemoveFinalizer::Removed),
        ),
        (
            "not listed yet",
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
            Observed { operation: Some(upgrading(&wanted)), ..base(Some(&there)) },
            Plan::Cancel,
        ),
        (
            "the removal is running",
            Observed {
                operation: Some(InFlight { operation: Operation::Remove, waiting: false }),
                ..base(Some(&there))
            },
            Plan::Wait(Wait::Operating(OperationKind::Remove)),
        ),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
    let past = PastFailure { key: failure_key::remove(), failure: unreachable.clone(), retry_at: at(2_000) };
    let failed = Observed { failure: Some(&past), ..base(Some(&there)) };
    assert_eq!(
        plan(&failed, GENERATION),
        Plan::Wait(Wait::Backoff { step: Step::Remove, failure: unreachable, until: at(2_000) })
    );
}

#[test]
fn what_is_needed_comes_first_and_goes_last() {
    let (wanted, base) = (digest('a'), ["base".to_owned()]);
    let there = seen(ReleaseStatus::Deployed, Some('a'));
    let old = seen(ReleaseStatus::Deployed, Some('b'));
    let stuck = seen(ReleaseStatus::PendingUpgrade, Some('b'));
    let on = base.to_vec();
    let rows = [
        ("not installed", None, Plan::Wait(Wait::Dependencies { on: on.clone() })),
        ("to be upgraded", Some(&old), Plan::Wait(Wait::Dependencies { on: on.clone() })),
        ("as it should be", Some(&there), Plan::NoOp),
        ("interrupted", Some(&stuck), operate(ApplyKind::Recover)),
    ];
    for (name, inventory, expected) in rows {
        let observed = Observed { unmet: &base, ..quiet(&wanted, inventory) };
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
    let needed = Observed { deleting: true, needed_by: &base, ..quiet(&wanted, Some(&there)) };
    assert_eq!(plan(&needed, GENERATION), Plan::Wait(Wait::Dependents { on }));
    let gone = Observed { deleting: true, needed_by: &base, ..quiet(&wanted, None) };
    assert_eq!(
        plan(&gone, GENERATION),
        Plan::RemoveFinalizer(RemoveFinalizer::Removed),
        "what is not there serves nobody"
    );
    let deleting = Observed { cluster: ClusterState::Deleting, ..needed };
    assert_eq!(
        plan(&deleting, GENERATION),
        Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone),
        "the cluster goes with all of it"
    );
}

#[test]
fn what_a_release_holds_elsewhere_is_given_back_before_its_cluster_goes() {
    let (wanted, there) = (digest('a'), seen(ReleaseStatus::Deployed, Some('a')));
    let deleting = Observed {
        deleting: true,
        cluster: ClusterState::Deleting,
        remove_with_cluster: true,
        ..quiet(&wanted, Some(&there))
    };
    assert_eq!(plan(&deleting, GENERATION), Plan::Operate(OperationKind::Remove));
    let late = Observed { remove_with_cluster: false, ..deleting.clone() };
    assert_eq!(plan(&late, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone));
    let gone = Observed { cluster: ClusterState::Missing, ..deleting };
    assert_eq!(plan(&gone, GENERATION), Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone));
}
