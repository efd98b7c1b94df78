//! Plans the next step for a release from its observed state.

mod compare_and_test;
#[cfg(test)]
pub(crate) mod fixtures;
mod observed;
mod remediation;
mod requested_rollback;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub use self::observed::{
    ClusterState, InFlight, InputState, InventoryState, Observed, OperationPhase, PastFailure, failure_key,
};
pub use self::requested_rollback::impossible_rollback;
use self::{
    compare_and_test::{plan_compare_and_test, plan_during_compare_or_test},
    remediation::Attempts,
};
use super::{ApplyKind, Collision, Operation, OperationKind, Strategy, TestNeed};
use crate::{
    digest::InputDigest,
    failure::Failure,
    inventory::{ReleaseStatus, RevisionState},
};

/// A pending operation of another client counts as interrupted if its record has not changed for this long, or for the
/// timeout of the release if that is longer.
const FOREIGN_OPERATION_LIMIT: Duration = Duration::from_mins(10);
/// The inputs of a release that is stalled are resolved again after this time.
const RESOLVED_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// The next step for a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Wait for an event or a time.
    Wait(Wait),
    /// The release is up to date.
    NoOp,
    /// Resolve the inputs, then plan again.
    Resolve,
    /// The release is up to date, but the status does not describe it: read the release once.
    Describe,
    /// Another client created this revision: read it, and adopt it if it equals the desired state.
    Adopt { revision: u32 },
    /// The inventory does not contain the release of a deleted object: read the release to be certain.
    ConfirmAbsence,
    /// Start an operation.
    Operate(OperationKind),
    /// Cancel the operation in flight.
    Cancel(OperationKind),
    /// Remove the operation from the queue, then plan again.
    Withdraw,
    /// Remove the finalizer from the object. The release on the cluster is not changed.
    RemoveFinalizer(RemoveFinalizer),
}

/// Why a release was rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolledBackCause {
    /// The last retry has failed.
    Failed(Failure),
    /// The inputs have failed, but the status that says why was lost.
    FailedBefore,
    /// A user has asked for it.
    Requested,
    /// The rollout that has updated the release was aborted.
    RolloutAborted,
}

/// Why a release has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    Paused,
    /// The object, its placement or its policy is suspended.
    Suspended,
    /// The policy of the placement does not exist.
    PolicyNotFound {
        name: String,
    },
    /// An AddonTenancy does not allow the release. What is installed is kept.
    NotAllowed {
        failure: Failure,
    },
    /// The inputs are not resolved while it is not known whether an AddonTenancy allows the release. Nothing is concluded about
    /// a release that runs.
    RulesUnknown {
        failure: Failure,
    },
    /// An operation has to be started, but it is not known yet whether an AddonTenancy allows it. Nothing has refused it.
    AwaitingRules {
        failure: Failure,
    },
    /// The last retry that the policy allows has failed.
    Exhausted {
        failure: Failure,
    },
    /// The process of the package tool has ended several times in a row because of the release.
    Stalled {
        failure: Failure,
    },
    /// An earlier revision was restored.
    RolledBack {
        cause: RolledBackCause,
    },
    /// The placement has a spec that the object does not reflect yet.
    PlacementChanging,
    ClusterMissing,
    ClusterDeleting,
    ControlPlaneNotInitialized,
    InventoryLoading,
    Unavailable(Failure),
    /// Chandler's own operation is running.
    Operating(OperationKind),
    /// The operation of another client is running, or was interrupted.
    ForeignOperation {
        status: ReleaseStatus,
        until: Timestamp,
    },
    /// The release belongs to another object.
    Taken {
        by: String,
    },
    /// These dependencies have to be ready first.
    Dependencies {
        on: Vec<String>,
    },
    /// These releases depend on it and have to be removed first.
    Dependents {
        on: Vec<String>,
    },
    /// The step failed and is retried later.
    Backoff {
        step: Step,
        failure: Failure,
        until: Timestamp,
    },
}

/// A step that can fail and is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Resolving the inputs.
    Resolve,
    /// Reading the release.
    Read,
    /// Installing, upgrading or recovering the release.
    Apply,
    /// Removing the release.
    Remove,
    /// Restoring an earlier revision.
    Rollback,
}

/// Why the finalizer is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveFinalizer {
    /// The release has been removed or does not exist.
    Removed,
    /// The release is managed from another management cluster now.
    Moved,
    /// The Cluster does not exist or is being deleted together with its releases.
    ClusterGone,
    /// Another object claims the release and owns it, now or after the deletion.
    Taken,
    /// The strategy is [`Strategy::InstallOnce`], which never removes a release.
    InstallOnce,
    /// The cluster is no longer selected, and the policy leaves the release there.
    Orphaned,
}

/// Returns the next step. `generation` is that of the release object.
pub fn plan(observed: &Observed<'_>, generation: Option<i64>) -> Plan {
    match observed.operation {
        Some(InFlight { operation, phase: OperationPhase::Queued }) => {
            plan_queued(observed, operation, generation)
        }
        _ if observed.deleting => plan_deletion(observed),
        _ => plan_presence(observed, generation),
    }
}

/// Plans while an operation waits for a slot: it is withdrawn unless it would be started now.
fn plan_queued(observed: &Observed<'_>, queued: Operation<&InputDigest>, generation: Option<i64>) -> Plan {
    let is_current = match (queued, &observed.inputs) {
        (
            Operation::Apply { inputs: queued, .. }
            | Operation::Rollback { inputs: queued }
            | Operation::Test { inputs: queued },
            InputState::Resolved(inputs),
        ) => queued == *inputs,
        (
            Operation::Apply { .. } | Operation::Rollback { .. } | Operation::Test { .. },
            InputState::Unresolved,
        ) => false,
        (Operation::Remove | Operation::UninstallFailed | Operation::Compare, _) => true,
    };
    match plan(&Observed { operation: None, ..observed.clone() }, generation) {
        Plan::Operate(kind) if kind == queued.kind() && is_current => Plan::Wait(Wait::Operating(kind)),
        Plan::Resolve => Plan::Resolve,
        _ => Plan::Withdraw,
    }
}

fn plan_deletion(observed: &Observed<'_>) -> Plan {
    match observed.operation {
        Some(InFlight {
            operation: operation @ (Operation::Remove | Operation::UninstallFailed), ..
        }) => {
            return Plan::Wait(Wait::Operating(operation.kind()));
        }
        Some(InFlight { operation, .. })
            if held(observed).is_some() && !observed.moved && operation.kind() != OperationKind::Compare =>
        {
            return Plan::Wait(Wait::Operating(operation.kind()));
        }
        Some(InFlight { operation, .. }) => return Plan::Cancel(operation.kind()),
        None => {}
    }
    if observed.moved {
        return Plan::RemoveFinalizer(RemoveFinalizer::Moved);
    }
    if observed.paused {
        return Plan::Wait(Wait::Paused);
    }
    let removed_first = observed.cluster == ClusterState::Deleting && observed.remove_with_cluster;
    if matches!(observed.cluster, ClusterState::Missing | ClusterState::Deleting) && !removed_first {
        return Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone);
    }
    if let Some(wait) = held(observed) {
        return Plan::Wait(wait);
    }
    if observed.orphan {
        return Plan::RemoveFinalizer(RemoveFinalizer::Orphaned);
    }
    match observed.collision {
        Collision::None => {}
        // The owner is being deleted too. If it leaves the release behind, this object has to remove it.
        Collision::Taken { by, deleting: true } => return Plan::Wait(Wait::Taken { by: by.clone() }),
        Collision::Taken { .. } | Collision::Contested { .. } => {
            return Plan::RemoveFinalizer(RemoveFinalizer::Taken);
        }
    }
    if observed.strategy == Strategy::InstallOnce {
        return Plan::RemoveFinalizer(RemoveFinalizer::InstallOnce);
    }
    if observed.cluster == ClusterState::ControlPlaneNotInitialized && !observed.installed_before {
        return Plan::RemoveFinalizer(RemoveFinalizer::Removed);
    }
    match observed.inventory {
        InventoryState::Loading => Plan::Wait(Wait::InventoryLoading),
        InventoryState::Unavailable(failure) => Plan::Wait(Wait::Unavailable(failure.clone())),
        InventoryState::Known(None) if !observed.absence_confirmed => {
            backed_off(observed, Step::Remove, &failure_key::remove()).unwrap_or(Plan::ConfirmAbsence)
        }
        InventoryState::Known(None | Some(RevisionState { status: ReleaseStatus::Uninstalled, .. })) => {
            Plan::RemoveFinalizer(RemoveFinalizer::Removed)
        }
        InventoryState::Known(Some(_)) if !observed.needed_by.is_empty() => {
            Plan::Wait(Wait::Dependents { on: observed.needed_by.to_vec() })
        }
        InventoryState::Known(Some(_)) => backed_off(observed, Step::Remove, &failure_key::remove())
            .unwrap_or(Plan::Operate(OperationKind::Remove)),
    }
}

fn plan_presence(observed: &Observed<'_>, generation: Option<i64>) -> Plan {
    if let Some(operation) = observed.operation {
        return plan_in_flight(observed, &operation, generation);
    }
    if observed.paused {
        return Plan::Wait(Wait::Paused);
    }
    if let Collision::Taken { by, .. } = observed.collision {
        return Plan::Wait(Wait::Taken { by: by.clone() });
    }
    match observed.cluster {
        ClusterState::Missing => return Plan::Wait(Wait::ClusterMissing),
        ClusterState::Deleting => return Plan::Wait(Wait::ClusterDeleting),
        ClusterState::ControlPlaneNotInitialized => return Plan::Wait(Wait::ControlPlaneNotInitialized),
        ClusterState::Available => {}
    }
    let newest = match observed.inventory {
        InventoryState::Loading => return Plan::Wait(Wait::InventoryLoading),
        InventoryState::Unavailable(failure) => return Plan::Wait(Wait::Unavailable(failure.clone())),
        InventoryState::Known(newest) => newest,
    };
    if observed.strategy == Strategy::InstallOnce && observed.installed_before {
        return plan_installed_once(observed, newest, generation);
    }
    if let Some(refused) = observed.not_allowed() {
        return Plan::Wait(refused);
    }
    let inputs = match observed.inputs {
        InputState::Unresolved => {
            let unknown = observed.rules_unknown().map(Plan::Wait);
            return unknown.or_else(|| resolve_backed_off(observed, generation)).unwrap_or(Plan::Resolve);
        }
        InputState::Resolved(inputs) => inputs,
    };
    if let Some(plan) =
        newest.and_then(|newest| requested_rollback::plan(observed, generation, inputs, newest))
    {
        return plan;
    }
    let attempts = Attempts::new(observed, generation, inputs);
    let next = match newest {
        Some(newest) => plan_existing(observed, inputs, newest, &attempts),
        None => operate(ApplyKind::Install),
    };
    let next = if next == Plan::NoOp { plan_compare_and_test(observed) } else { next };
    let wait = match next {
        Plan::Operate(OperationKind::Compare) => return next,
        Plan::Operate(OperationKind::Test) if observed.tests == TestNeed::Optional => return next,
        Plan::Adopt { .. } if held(observed).is_some() => held(observed).map(Plan::Wait),
        Plan::Adopt { .. } if observed.refused.is_some() => observed.rules_unknown().map(Plan::Wait),
        Plan::Describe | Plan::Adopt { .. } => {
            backed_off(observed, Step::Read, &failure_key::read(generation, Some(inputs)))
        }
        Plan::Operate(_) => hold_operation(observed).or_else(|| attempts.remediate(newest)),
        _ => None,
    };
    let wait = wait.or_else(|| match next {
        Plan::Operate(OperationKind::Apply(ApplyKind::Install | ApplyKind::Upgrade))
            if !observed.unmet.is_empty() =>
        {
            Some(Plan::Wait(Wait::Dependencies { on: observed.unmet.to_vec() }))
        }
        // Reading the package or the values again, right before they are applied, may have failed.
        Plan::Operate(_) => backed_off(observed, Step::Apply, attempts.key())
            .or_else(|| resolve_backed_off(observed, generation)),
        _ => None,
    });
    wait.unwrap_or(next)
}

/// Plans for a release that Chandler does not change any more. Other clients may: its health is that of the newest revision.
fn plan_installed_once(
    observed: &Observed<'_>,
    newest: Option<&RevisionState>,
    generation: Option<i64>,
) -> Plan {
    let deployed = newest.filter(|newest| newest.status == ReleaseStatus::Deployed);
    let Some(read) = deployed.and_then(|deployed| described(observed, deployed)) else { return Plan::NoOp };
    let inputs = match observed.inputs {
        InputState::Unresolved => None,
        InputState::Resolved(inputs) => Some(inputs),
    };
    backed_off(observed, Step::Read, &failure_key::read(generation, inputs)).unwrap_or(read)
}

/// Returns why no operation is started on the release, except for the state of the release itself.
fn hold_operation(observed: &Observed<'_>) -> Option<Plan> {
    let wait = if observed.placement_paused {
        Some(Wait::Paused)
    } else if observed.placement_changing {
        Some(Wait::PlacementChanging)
    } else {
        held(observed).or_else(|| observed.not_known_to_be_allowed())
    };
    wait.map(Plan::Wait)
}

/// Returns why an install is not started, for a release that is not installed on a cluster whose control plane is not
/// initialized yet, so that nothing else is known.
pub fn hold_install(observed: &Observed<'_>) -> Option<Wait> {
    if observed.paused {
        return Some(Wait::Paused);
    }
    if let Collision::Taken { by, .. } = observed.collision {
        return Some(Wait::Taken { by: by.clone() });
    }
    match hold_operation(observed) {
        Some(Plan::Wait(wait)) => Some(wait),
        _ if !observed.unmet.is_empty() => Some(Wait::Dependencies { on: observed.unmet.to_vec() }),
        _ => None,
    }
}

/// Returns why no operation is started, not even a removal.
fn held(observed: &Observed<'_>) -> Option<Wait> {
    if observed.suspended {
        return Some(Wait::Suspended);
    }
    observed.policy_missing.map(|name| Wait::PolicyNotFound { name: name.to_owned() })
}

/// Plans while Chandler's own operation is running: waits for it, or cancels it if it waits for objects of outdated
/// inputs. A user who fixes a wrong value must not have to wait for the timeout of the operation with the wrong value.
fn plan_in_flight(observed: &Observed<'_>, operation: &InFlight<'_>, generation: Option<i64>) -> Plan {
    let kind = operation.operation.kind();
    let wait = Plan::Wait(Wait::Operating(kind));
    if kind.creates_no_revision() {
        return plan_during_compare_or_test(observed, kind, generation);
    }
    let (Operation::Apply { inputs: applied, .. } | Operation::Rollback { inputs: applied }) =
        operation.operation
    else {
        return wait;
    };
    let is_held = observed.paused || observed.placement_paused || held(observed).is_some();
    if is_held || operation.phase != OperationPhase::Waiting {
        return wait;
    }
    match observed.inputs {
        InputState::Unresolved if observed.refused.is_some() => wait,
        InputState::Unresolved if resolve_backed_off(observed, generation).is_some() => wait,
        InputState::Unresolved => Plan::Resolve,
        InputState::Resolved(inputs) if applied != inputs => Plan::Cancel(operation.operation.kind()),
        InputState::Resolved(_)
            if observed.requested_rollback.is_some()
                && matches!(operation.operation, Operation::Apply { .. }) =>
        {
            Plan::Cancel(operation.operation.kind())
        }
        InputState::Resolved(_) => wait,
    }
}

fn operate(kind: ApplyKind) -> Plan {
    Plan::Operate(OperationKind::Apply(kind))
}

/// Plans for a release that exists.
fn plan_existing(
    observed: &Observed<'_>,
    inputs: &InputDigest,
    newest: &RevisionState,
    attempts: &Attempts<'_>,
) -> Plan {
    match newest.status {
        status if status.is_interrupted_or_running() => plan_interrupted(observed, newest, attempts),
        ReleaseStatus::Uninstalled => operate(ApplyKind::Install),
        ReleaseStatus::Deployed => match &newest.mark {
            Some(mark) if mark.digest == *inputs => described(observed, newest).unwrap_or(Plan::NoOp),
            _ if attempts.are_rolled_back(newest) => {
                described(observed, newest).unwrap_or_else(|| attempts.rolled_back())
            }
            Some(_) => operate(ApplyKind::Upgrade),
            None if observed.differs == Some(newest.revision) => operate(ApplyKind::Upgrade),
            None => Plan::Adopt { revision: newest.revision },
        },
        _ => operate(ApplyKind::Upgrade),
    }
}

/// Returns the step that fills in the details of the status, unless it describes this revision.
fn described(observed: &Observed<'_>, newest: &RevisionState) -> Option<Plan> {
    (observed.described != Some(newest.revision)).then_some(Plan::Describe)
}

/// Plans for a pending revision without an operation in flight: an operation of Chandler has been interrupted, one of
/// another client may still be running. A removal is by another client, unless the policy removes releases that have failed:
/// otherwise Chandler removes only releases of objects that are being deleted.
///
/// The time counts since the record was last seen to change. The time in the record is never later, unless another clock
/// has written it. A record that was neither seen nor reported yet is not known to be unchanged.
fn plan_interrupted(observed: &Observed<'_>, newest: &RevisionState, attempts: &Attempts<'_>) -> Plan {
    let is_own = newest.mark.is_some()
        && (newest.status != ReleaseStatus::Uninstalling || attempts.uninstalls_on_failure(newest));
    let since = observed.unchanged_since.unwrap_or(observed.now);
    let limit = observed.timeout.max(FOREIGN_OPERATION_LIMIT);
    let until = since.checked_add(limit).unwrap_or(Timestamp::MAX);
    if is_own || until <= observed.now {
        return operate(ApplyKind::Recover);
    }
    Plan::Wait(Wait::ForeignOperation { status: newest.status, until })
}

fn resolve_backed_off(observed: &Observed<'_>, generation: Option<i64>) -> Option<Plan> {
    backed_off(observed, Step::Resolve, &failure_key::resolve(generation))
}

fn backed_off(observed: &Observed<'_>, step: Step, key: &str) -> Option<Plan> {
    let stalled = observed.failure.filter(|past| {
        // The key does not say which package was read: another one may have been published.
        let is_due = step == Step::Resolve && past.at.duration_until(observed.now) >= RESOLVED_AGAIN_AFTER;
        let is_stalled = past.is_stalled() && past.crashed == key && !is_due;
        is_stalled && !past.is_overridden(observed.requested_retry())
    });
    if let Some(past) = stalled {
        return Some(Plan::Wait(Wait::Stalled { failure: past.crash() }));
    }
    let past = observed.failure.filter(|past| {
        past.key == key && past.retry_at > observed.now && !past.is_overridden(observed.requested_retry())
    })?;
    Some(Plan::Wait(Wait::Backoff { step, failure: past.failure.clone(), until: past.retry_at }))
}

#[cfg(test)]
mod tests;
