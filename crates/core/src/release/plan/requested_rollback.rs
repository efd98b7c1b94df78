//! A rollback that a user has asked for, or that follows from an aborted rollout.

use super::{
    InputState, InventoryState, Observed, OperationKind, Plan, RolledBackCause, Step, Wait, backed_off,
    described, failure_key, hold_operation,
};
use crate::{
    digest::InputDigest,
    inventory::{ReleaseStatus, RevisionState},
    release::{RequestedRollback, RollbackOrigin},
};

/// Returns the next step of a requested rollback. `None` means that there is none, or that the revision cannot be restored.
pub(super) fn plan(
    observed: &Observed<'_>,
    generation: Option<i64>,
    inputs: &InputDigest,
    newest: &RevisionState,
) -> Option<Plan> {
    let request = observed.requested_rollback?;
    let to = request.revision;
    if is_restored(request, inputs, newest) {
        let key = failure_key::read(generation, Some(inputs));
        let describe = described(observed, newest)
            .map(|describe| backed_off(observed, Step::Read, &key).unwrap_or(describe));
        let cause = match request.origin {
            RollbackOrigin::User { .. } => RolledBackCause::Requested,
            RollbackOrigin::AbortedRollout => RolledBackCause::RolloutAborted,
        };
        return Some(describe.unwrap_or(Plan::Wait(Wait::RolledBack { cause })));
    }
    let is_foreign = newest.mark.is_none() && newest.status.is_interrupted_or_running();
    if observed.rollback_to != Some(to) || newest.revision == to || is_foreign {
        return None;
    }
    let key = failure_key::rollback(generation, inputs);
    let wait = hold_operation(observed).or_else(|| backed_off(observed, Step::Rollback, &key));
    Some(wait.unwrap_or(Plan::Operate(OperationKind::Rollback)))
}

/// Returns the requested revision, if it is known that it cannot be restored.
pub fn impossible_rollback(observed: &Observed<'_>) -> Option<u32> {
    let (InputState::Resolved(inputs), InventoryState::Known(Some(newest))) =
        (&observed.inputs, &observed.inventory)
    else {
        return None;
    };
    let request = observed.requested_rollback?;
    let is_impossible = !observed.deleting
        && !is_restored(request, inputs, newest)
        && newest.revision != request.revision
        && observed.rollback_to != Some(request.revision);
    is_impossible.then_some(request.revision)
}

/// Returns whether the newest revision is the requested one, or restores it.
fn is_restored(request: &RequestedRollback, inputs: &InputDigest, newest: &RevisionState) -> bool {
    let has_inputs = newest.mark.as_ref().is_some_and(|mark| mark.digest == *inputs);
    let rolled_back = newest.rolled_back.as_ref();
    // The inputs change while the request stays if a newer version of the package is found.
    let is_of_request = match &request.origin {
        RollbackOrigin::User { replaces } => rolled_back == Some(replaces),
        RollbackOrigin::AbortedRollout => false,
    };
    newest.status == ReleaseStatus::Deployed
        && (newest.revision == request.revision && !has_inputs
            || rolled_back == Some(inputs)
            || is_of_request)
}
