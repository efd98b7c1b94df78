//! Plans the next step for a release from its observed state.

use std::time::Duration;

use jiff::Timestamp;

use super::{ApplyKind, Collision, Operation, OperationKind, Strategy};
use crate::{
    digest::InputDigest,
    failure::Failure,
    inventory::{ReleaseStatus, RevisionState},
};

/// A pending operation of another client that is older than this counts as interrupted.
const FOREIGN_OPERATION_LIMIT: Duration = Duration::from_mins(15);

/// The observed state of a release: everything that [`plan`] depends on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// Whether the release object is being deleted.
    pub deleting: bool,
    /// Whether it is being deleted because `clusterctl move` has moved it to another management cluster.
    pub moved: bool,
    /// Whether the object or its Cluster is paused.
    pub paused: bool,
    /// Whether the placement of the object is paused: its releases are not changed, but they are reported and may be
    /// removed.
    pub placement_paused: bool,
    /// Whether the object does not reflect the current spec of its placement yet, so that it is about to change.
    pub placement_changing: bool,
    pub cluster: ClusterState,
    pub strategy: Strategy,
    pub collision: &'a Collision,
    /// Dependencies that are not ready.
    pub unmet: &'a [String],
    /// Release objects that depend on this one.
    pub needed_by: &'a [String],
    /// Whether the release is uninstalled before its Cluster is deleted.
    pub remove_with_cluster: bool,
    /// Whether Chandler has installed the release at least once.
    pub installed_before: bool,
    pub inventory: InventoryState<'a>,
    pub inputs: InputState<'a>,
    /// Chandler's own operation in flight, if any.
    pub operation: Option<InFlight<'a>>,
    /// The revision that the status describes.
    pub described: Option<u32>,
    /// A revision by another client that was read and differs from the desired state.
    pub differs: Option<u32>,
    /// Whether the tool has confirmed that the release does not exist. The inventory may lag behind an operation.
    pub absence_confirmed: bool,
    pub failure: Option<&'a PastFailure>,
    pub now: Timestamp,
}

/// The lifecycle state of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    Missing,
    Deleting,
    ControlPlaneNotInitialized,
    Available,
}

/// What the inventory of the workload cluster knows about the release.
#[derive(Clone, Debug)]
pub enum InventoryState<'a> {
    /// The first list is not complete, so an absent release may exist.
    Loading,
    /// The cluster is unreachable.
    Unavailable(&'a Failure),
    /// The newest revision, or `None` if the release does not exist.
    Known(Option<&'a RevisionState>),
}

/// The inputs of the release.
#[derive(Clone, Debug)]
pub enum InputState<'a> {
    /// Package and values have not been resolved for the current spec.
    Unresolved,
    Resolved(&'a InputDigest),
}

/// Chandler's own operation that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a> {
    pub operation: Operation<&'a InputDigest>,
    pub phase: OperationPhase,
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationPhase {
    /// It waits for a slot. Nothing has been done.
    Queued,
    Running,
    /// It has done its writes and only waits for objects to become ready or for a hook to end.
    Waiting,
}

/// The last failure, until the step that failed succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// Identifies the step that failed, see [`failure_key`].
    pub key: String,
    pub failure: Failure,
    pub retry_at: Timestamp,
}

/// Keys of the steps that can fail. Backoff applies to a step with the same key; a step with another key is tried at
/// once.
pub mod failure_key {
    use crate::digest::InputDigest;

    /// Resolving the inputs of a generation of the spec.
    pub fn resolve(generation: Option<i64>) -> String {
        format!("generation-{}", generation.unwrap_or_default())
    }

    /// Reading the release that should have been created from these inputs.
    pub fn read(generation: Option<i64>, inputs: &InputDigest) -> String {
        format!("read-{}", apply(generation, inputs))
    }

    /// Applying these inputs for a generation of the spec.
    pub fn apply(generation: Option<i64>, inputs: &InputDigest) -> String {
        format!("{}-{inputs}", generation.unwrap_or_default())
    }

    /// Removing the release.
    pub fn remove() -> String {
        "remove".to_owned()
    }
}

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

/// Why a release has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    Paused,
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
        (Operation::Apply { inputs: queued, .. }, InputState::Resolved(inputs)) => queued == *inputs,
        (Operation::Apply { .. }, InputState::Unresolved) => false,
        (Operation::Remove, _) => true,
    };
    match plan(&Observed { operation: None, ..observed.clone() }, generation) {
        Plan::Operate(kind) if kind == queued.kind() && is_current => Plan::Wait(Wait::Operating(kind)),
        Plan::Resolve => Plan::Resolve,
        _ => Plan::Withdraw,
    }
}

fn plan_deletion(observed: &Observed<'_>) -> Plan {
    match observed.operation {
        Some(InFlight { operation: Operation::Remove, .. }) => {
            return Plan::Wait(Wait::Operating(OperationKind::Remove));
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
        return Plan::NoOp;
    }
    let inputs = match observed.inputs {
        InputState::Unresolved => {
            return resolve_backed_off(observed, generation).unwrap_or(Plan::Resolve);
        }
        InputState::Resolved(inputs) => inputs,
    };
    let next = newest.map_or(operate(ApplyKind::Install), |newest| plan_existing(observed, inputs, newest));
    let wait = match next {
        Plan::Describe | Plan::Adopt { .. } => {
            backed_off(observed, Step::Read, &failure_key::read(generation, inputs))
        }
        Plan::Operate(_) if observed.placement_paused => Some(Plan::Wait(Wait::Paused)),
        Plan::Operate(_) if observed.placement_changing => Some(Plan::Wait(Wait::PlacementChanging)),
        Plan::Operate(OperationKind::Apply(ApplyKind::Install | ApplyKind::Upgrade))
            if !observed.unmet.is_empty() =>
        {
            Some(Plan::Wait(Wait::Dependencies { on: observed.unmet.to_vec() }))
        }
        Plan::Operate(_) => backed_off(observed, Step::Apply, &failure_key::apply(generation, inputs)),
        _ => None,
    };
    wait.unwrap_or(next)
}

/// Plans while Chandler's own operation is running: waits for it, or cancels it if it waits for objects of outdated
/// inputs. A user who fixes a wrong value must not have to wait for the timeout of the operation with the wrong value.
fn plan_in_flight(observed: &Observed<'_>, operation: &InFlight<'_>, generation: Option<i64>) -> Plan {
    let wait = Plan::Wait(Wait::Operating(operation.operation.kind()));
    let Operation::Apply { inputs: applied, .. } = operation.operation else { return wait };
    if observed.paused || observed.placement_paused || operation.phase != OperationPhase::Waiting {
        return wait;
    }
    match observed.inputs {
        InputState::Unresolved if resolve_backed_off(observed, generation).is_some() => wait,
        InputState::Unresolved => Plan::Resolve,
        InputState::Resolved(inputs) if applied != inputs => Plan::Cancel(operation.operation.kind()),
        InputState::Resolved(_) => wait,
    }
}

fn operate(kind: ApplyKind) -> Plan {
    Plan::Operate(OperationKind::Apply(kind))
}

/// Plans for a release that exists.
fn plan_existing(observed: &Observed<'_>, inputs: &InputDigest, newest: &RevisionState) -> Plan {
    match newest.status {
        status if status.is_interrupted_or_running() => plan_interrupted(observed, newest),
        ReleaseStatus::Uninstalled => operate(ApplyKind::Install),
        ReleaseStatus::Deployed => match &newest.mark {
            Some(mark) if mark.digest == *inputs => {
                if observed.described == Some(newest.revision) {
                    Plan::NoOp
                } else {
                    Plan::Describe
                }
            }
            Some(_) => operate(ApplyKind::Upgrade),
            None if observed.differs == Some(newest.revision) => operate(ApplyKind::Upgrade),
            None => Plan::Adopt { revision: newest.revision },
        },
        _ => operate(ApplyKind::Upgrade),
    }
}

/// Plans for a pending revision without an operation in flight: an operation of Chandler has been interrupted, one of
/// another client may still be running. A removal is always by another client, because Chandler removes only releases
/// of objects that are being deleted.
fn plan_interrupted(observed: &Observed<'_>, newest: &RevisionState) -> Plan {
    let is_own = newest.mark.is_some() && newest.status != ReleaseStatus::Uninstalling;
    let until = newest.updated.and_then(|updated| updated.checked_add(FOREIGN_OPERATION_LIMIT).ok());
    match until {
        Some(until) if !is_own && until > observed.now => {
            Plan::Wait(Wait::ForeignOperation { status: newest.status, until })
        }
        _ => operate(ApplyKind::Recover),
    }
}

fn resolve_backed_off(observed: &Observed<'_>, generation: Option<i64>) -> Option<Plan> {
    backed_off(observed, Step::Resolve, &failure_key::resolve(generation))
}

fn backed_off(observed: &Observed<'_>, step: Step, key: &str) -> Option<Plan> {
    let past = observed.failure.filter(|past| past.key == key && past.retry_at > observed.now)?;
    Some(Plan::Wait(Wait::Backoff { step, failure: past.failure.clone(), until: past.retry_at }))
}

#[cfg(test)]
mod tests;
