//! Rollbacks that users ask for.

use super::*;

const ROLLBACK: Plan = Plan::Operate(OperationKind::Rollback);
const ROLLED_BACK: Plan = Plan::Wait(Wait::RolledBack { cause: RolledBackCause::Requested });

/// A user's request to restore a revision instead of the inputs `a`.
fn request(revision: u32) -> RequestedRollback {
    RequestedRollback { revision, origin: RollbackOrigin::User { replaces: digest('a') } }
}

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
    let impossible = ["the revision is not stored", "another one could be restored"];
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
        let request = requested_rollback.map(request);
        let requested_rollback = request.as_ref();
        let observed = Observed { rollback_to, requested_rollback, ..stable(&inputs, Some(newest)) };
        assert_eq!(plan(&observed, GENERATION), expected, "{what}");
        assert_eq!(impossible_rollback(&observed).is_some(), impossible.contains(&what), "{what}");
    }
}

#[test]
fn a_newer_version_does_not_end_a_rollback() {
    let newer = digest('e');
    let restored =
        RevisionState { rolled_back: Some(digest('a')), ..revision(ReleaseStatus::Deployed, Some('b')) };
    let request = request(3);
    let observed = Observed {
        requested_rollback: Some(&request),
        rollback_to: Some(3),
        ..stable(&newer, Some(&restored))
    };
    assert_eq!(plan(&observed, GENERATION), ROLLED_BACK);
}

#[test]
fn the_cause_of_a_rollback_is_reported() {
    let inputs = digest('a');
    let restored =
        RevisionState { rolled_back: Some(digest('a')), ..revision(ReleaseStatus::Deployed, Some('b')) };
    let request = RequestedRollback::of_aborted_rollout(3);
    let observed = Observed { requested_rollback: Some(&request), ..stable(&inputs, Some(&restored)) };
    let cause = RolledBackCause::RolloutAborted;
    assert_eq!(plan(&observed, GENERATION), Plan::Wait(Wait::RolledBack { cause }));
}

#[test]
fn a_requested_rollback_waits_like_other_operations() {
    let inputs = digest('a');
    let deployed = revision(ReleaseStatus::Deployed, Some('a'));
    let request = request(3);
    let base = Observed {
        requested_rollback: Some(&request),
        rollback_to: Some(3),
        ..stable(&inputs, Some(&deployed))
    };
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
    let request = request(3);
    let base = Observed {
        requested_rollback: Some(&request),
        rollback_to: Some(3),
        ..stable(&inputs, Some(&pending))
    };
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
