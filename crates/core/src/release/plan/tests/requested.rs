//! Rollbacks that users ask for.

use super::*;

const ROLLBACK: Plan = Plan::Operate(OperationKind::Rollback);
const ROLLED_BACK: Plan = Plan::Wait(Wait::RolledBack { failure: None });

#[test]
fn a_requested_revision_is_restored_once() {
    use ReleaseStatus as S;
    let inputs = digest('a');
    let deployed = revision(S::Deployed, Some('a'));
    let earlier = revision(S::Deployed, Some('b'));
    let restored = RevisionState { rolled_back: Some(digest('a')), ..earlier.clone() };
    let of_other = RevisionState { rolled_back: Some(digest('c')), ..deployed.clone() };
    let half = RevisionState { rolled_back: Some(digest('a')), ..revision(S::Failed, Some('b')) };
    // What, the newest revision (4), the requested revision, the one that can be restored; the plan.
    let rows = [
        ("it is deployed", &deployed, Some(3), Some(3), ROLLBACK),
        ("it has failed", &revision(S::Failed, Some('a')), Some(3), Some(3), ROLLBACK),
        ("it was interrupted", &revision(S::PendingUpgrade, Some('a')), Some(3), Some(3), ROLLBACK),
        ("the rollback has failed", &half, Some(3), Some(3), ROLLBACK),
        ("it is restored", &restored, Some(3), Some(3), ROLLED_BACK),
        ("other inputs were rolled back before", &of_other, Some(3), Some(3), ROLLBACK),
        ("the upgrade has not begun", &earlier, Some(4), None, ROLLED_BACK),
        ("it is the current revision", &deployed, Some(4), None, Plan::NoOp),
        ("the revision is not stored", &deployed, Some(3), None, Plan::NoOp),
        ("another one could be restored", &deployed, Some(2), Some(3), Plan::NoOp),
        ("nothing is requested", &deployed, None, Some(3), Plan::NoOp),
    ];
    for (what, newest, requested_rollback, rollback_to, expected) in rows {
        let observed = Observed { requested_rollback, rollback_to, ..stable(&inputs, Some(newest)) };
        assert_eq!(plan(&observed, GENERATION), expected, "{what}");
    }
}

#[test]
fn a_requested_rollback_waits_like_other_operations() {
    let inputs = digest('a');
    let deployed = revision(ReleaseStatus::Deployed, Some('a'));
    let base =
        Observed { requested_rollback: Some(3), rollback_to: Some(3), ..stable(&inputs, Some(&deployed)) };
    let suspended = Observed { suspended: true, ..base.clone() };
    assert_eq!(plan(&suspended, GENERATION), Plan::Wait(Wait::Suspended));
    let failure = Failure::new(Category::NotReady, "0 of 2 replicas");
    let past = past(failure_key::rollback(GENERATION, &inputs), failure.clone(), 1_020);
    let failed = Observed { failure: Some(&past), ..base.clone() };
    let until = at(1_020);
    assert_eq!(plan(&failed, GENERATION), Plan::Wait(Wait::Backoff { step: Step::Rollback, failure, until }));
    let foreign = revision(ReleaseStatus::PendingUpgrade, None);
    let running = Observed { inventory: InventoryState::Known(Some(&foreign)), ..base };
    assert!(matches!(plan(&running, GENERATION), Plan::Wait(Wait::ForeignOperation { .. })));
}

#[test]
fn an_upgrade_that_waits_for_objects_is_canceled() {
    let inputs = digest('a');
    let pending = revision(ReleaseStatus::PendingUpgrade, Some('a'));
    let waiting = |phase| InFlight { phase, ..upgrading(&inputs) };
    let base =
        Observed { requested_rollback: Some(3), rollback_to: Some(3), ..stable(&inputs, Some(&pending)) };
    let rows = [
        (OperationPhase::Waiting, Plan::Cancel(OperationKind::UPGRADE)),
        (OperationPhase::Running, Plan::Wait(Wait::Operating(OperationKind::UPGRADE))),
        (OperationPhase::Queued, Plan::Withdraw),
    ];
    for (phase, expected) in rows {
        let observed = Observed { operation: Some(waiting(phase)), ..base.clone() };
        assert_eq!(plan(&observed, GENERATION), expected, "{phase:?}");
    }
}
