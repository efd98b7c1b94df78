//! A rollback that a user has asked for, or that follows from an aborted rollout.

use super::{Observed, OperationKind, Plan, Step, Wait, backed_off, described, failure_key, hold_operation};
use crate::{
    digest::InputDigest,
    inventory::{ReleaseStatus, RevisionState},
};

/// Returns the next step of a requested rollback. `None` means that there is none, or that the revision cannot be restored.
pub(super) fn plan(
    observed: &Observed<'_>,
    generation: Option<i64>,
    inputs: &InputDigest,
    newest: &RevisionState,
) -> Option<Plan> {
    let to = observed.requested_rollback?;
    let has_inputs = newest.mark.as_ref().is_some_and(|mark| mark.digest == *inputs);
    let is_restored = newest.revision == to && !has_inputs || newest.rolled_back.as_ref() == Some(inputs);
    if newest.status == ReleaseStatus::Deployed && is_restored {
        let key = failure_key::read(generation, Some(inputs));
        let describe = described(observed, newest)
            .map(|describe| backed_off(observed, Step::Read, &key).unwrap_or(describe));
        return Some(describe.unwrap_or(Plan::Wait(Wait::RolledBack { failure: None })));
    }
    let is_foreign = newest.mark.is_none() && newest.status.is_interrupted_or_running();
    if observed.rollback_to != Some(to) || newest.revision == to || is_foreign {
        return None;
    }
    let key = failure_key::rollback(generation, inputs);
    let wait = hold_operation(observed).or_else(|| backed_off(observed, Step::Rollback, &key));
    Some(wait.unwrap_or(Plan::Operate(OperationKind::Rollback)))
}
