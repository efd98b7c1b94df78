//! The decision: from what is observed to what is done. Pure; every row of the table has a test below.

use std::time::Duration;

use jiff::Timestamp;

use super::{ApplyKind, Collision, Operation, OperationKind, Strategy};
use crate::{
    digest::InputDigest,
    failure::Failure,
    inventory::{ReleaseStatus, Seen},
};

/// Someone else's operation that has been pending for so long is dead.
const FOREIGN_OPERATION_LIMIT: Duration = Duration::from_mins(15);

/// Everything a decision looks at.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The release object is being deleted.
    pub deleting: bool,
    /// It is deleted here because it has moved to another management cluster.
    pub moved: bool,
    /// The object or its cluster is paused.
    pub paused: bool,
    pub cluster: ClusterState,
    pub strategy: Strategy,
    pub collision: &'a Collision,
    /// Objects that have to be ready first, and are not.
    pub unmet: &'a [String],
    /// Objects that are there and have this one to be ready first.
    pub needed_by: &'a [String],
    /// Whether the release is removed from a cluster that is being deleted.
    pub remove_with_cluster: bool,
    /// The release has been installed by us at least once.
    pub installed_before: bool,
    pub inventory: InventoryState<'a>,
    pub inputs: InputState<'a>,
    /// The operation in flight, if any.
    pub operation: Option<InFlight<'a>>,
    /// The revision whose details the status holds.
    pub described: Option<u32>,
    /// A revision of someone else's that was read and found different from what is wanted.
    pub differs: Option<u32>,
    pub failure: Option<&'a PastFailure>,
    pub now: Timestamp,
}

/// Where a cluster is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    Missing,
    Deleting,
    ControlPlaneNotInitialized,
    Available,
}

/// What is known of the release on the cluster.
#[derive(Clone, Debug)]
pub enum InventoryState<'a> {
    /// Not listed completely yet: nothing may be concluded from absence.
    Loading,
    /// The cluster cannot be asked.
    Unavailable(&'a Failure),
    Known(Option<&'a Seen>),
}

/// Everything that decides what the release looks like.
#[derive(Clone, Debug)]
pub enum InputState<'a> {
    /// Not looked up yet.
    Unresolved,
    Resolved(&'a InputDigest),
}

/// An operation of ours that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a> {
    pub operation: Operation<&'a InputDigest>,
    /// It has done its writes and only waits, for objects to become ready or for a hook to end.
    pub waiting: bool,
}

/// A failure that has not been overcome yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// What failed: see [`failure_key`].
    pub key: String,
    pub failure: Failure,
    pub retry_at: Timestamp,
}

/// Names what failed. While the same thing is still to be done, its backoff holds; anything else is tried at once.
pub mod failure_key {
    use crate::digest::InputDigest;

    /// Finding out the inputs of one generation of the spec.
    pub fn resolve(generation: Option<i64>) -> String {
        format!("generation-{}", generation.unwrap_or_default())
    }

    /// Reading the release that should have these inputs.
    pub fn read(generation: Option<i64>, inputs: &InputDigest) -> String {
        format!("read-{}", apply(generation, inputs))
    }

    /// Bringing the release to these inputs, as this generation of the spec asks for it.
    pub fn apply(generation: Option<i64>, inputs: &InputDigest) -> String {
        format!("{}-{inputs}", generation.unwrap_or_default())
    }

    /// Removing the release.
    pub fn remove() -> String {
        "remove".to_owned()
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing can be done until something happens.
    Wait(Wait),
    /// Everything is as it should be.
    NoOp,
    /// Find out the inputs, then plan again.
    Resolve,
    /// The release is right, but the status does not know its details: read it once.
    Describe,
    /// Someone else made this revision: read it once, and mark it as ours if it is what is wanted.
    Adopt { revision: u32 },
    /// Start an operation.
    Operate(OperationKind),
    /// Stop the operation in flight.
    Cancel,
    /// Let the object go without touching the cluster.
    RemoveFinalizer(RemoveFinalizer),
}

/// Why nothing can be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    Paused,
    ClusterMissing,
    ClusterDeleting,
    ControlPlaneNotInitialized,
    InventoryLoading,
    Unavailable(Failure),
    /// An operation of ours runs.
    Operating(OperationKind),
    /// An operation of someone else runs, or did when it died.
    ForeignOperation {
        status: ReleaseStatus,
        until: Timestamp,
    },
    /// The release is another object's.
    Taken {
        by: String,
    },
    /// Others have to be ready first.
    Dependencies {
        on: Vec<String>,
    },
    /// Others that need it have to go first.
    Dependents {
        on: Vec<String>,
    },
    /// The same thing failed before.
    Backoff {
        step: Step,
        failure: Failure,
        until: Timestamp,
    },
}

/// What failed, and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Finding out the inputs.
    Resolve,
    /// Reading the release.
    Read,
    /// Installing, upgrading or recovering it.
    Apply,
    /// Removing it.
    Remove,
}

/// Why an object may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveFinalizer {
    /// The release is gone.
    Removed,
    /// The release is looked after from another management cluster now.
    Moved,
    /// The cluster is gone or deleting, and its releases with it.
    ClusterGone,
    /// The release is another object's, or will be: others claim it too.
    Taken,
    /// The release was to be installed once and left alone.
    InstallOnce,
}

/// Decides. `generation` is that of the release object's spec.
pub fn plan(observed: &Observed<'_>, generation: Option<i64>) -> Plan {
    if observed.deleting { plan_deletion(observed) } else { plan_presence(observed, generation) }
}

fn plan_deletion(observed: &Observed<'_>) -> Plan {
    match observed.operation {
        Some(InFlight { operation: Operation::Remove, .. }) => {
            return Plan::Wait(Wait::Operating(OperationKind::Remove));
        }
        Some(_) => return Plan::Cancel,
        None => {}
    }
    if observed.moved {
        return Plan::RemoveFinalizer(RemoveFinalizer::Moved);
    }
    if observed.paused {
        return Plan::Wait(Wait::Paused);
    }
    let lives_on = observed.cluster == ClusterState::Deleting && observed.remove_with_cluster;
    if matches!(observed.cluster, ClusterState::Missing | ClusterState::Deleting) && !lives_on {
        return Plan::RemoveFinalizer(RemoveFinalizer::ClusterGone);
    }
    match observed.collision {
        Collision::None => {}
        // Who has it goes too: what it leaves behind, if anything, is ours to remove.
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
        InventoryState::Known(None | Some(Seen { status: ReleaseStatus::Uninstalled, .. })) => {
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
    let seen = match observed.inventory {
        InventoryState::Loading => return Plan::Wait(Wait::InventoryLoading),
        InventoryState::Unavailable(failure) => return Plan::Wait(Wait::Unavailable(failure.clone())),
        InventoryState::Known(seen) => seen,
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
    let wanted = seen.map_or(operate(ApplyKind::Install), |seen| plan_existing(observed, inputs, seen));
    let backed_off = match wanted {
        Plan::Describe | Plan::Adopt { .. } => {
            backed_off(observed, Step::Read, &failure_key::read(generation, inputs))
        }
        Plan::Operate(OperationKind::Apply(ApplyKind::Install | ApplyKind::Upgrade))
            if !observed.unmet.is_empty() =>
        {
            Some(Plan::Wait(Wait::Dependencies { on: observed.unmet.to_vec() }))
        }
        Plan::Operate(_) => backed_off(observed, Step::Apply, &failure_key::apply(generation, inputs)),
        _ => None,
    };
    backed_off.unwrap_or(wanted)
}

/// What to do while an operation of ours runs: wait for it, unless it waits itself for something that is not wanted any
/// more. A person who mends a bad value must not have to sit out the time limit of the bad one.
fn plan_in_flight(observed: &Observed<'_>, operation: &InFlight<'_>, generation: Option<i64>) -> Plan {
    let wait = Plan::Wait(Wait::Operating(operation.operation.kind()));
    let Operation::Apply { inputs: applied, .. } = operation.operation else { return wait };
    if observed.paused || !operation.waiting {
        return wait;
    }
    match observed.inputs {
        InputState::Unresolved if resolve_backed_off(observed, generation).is_some() => wait,
        InputState::Unresolved => Plan::Resolve,
        InputState::Resolved(inputs) if applied != inputs => Plan::Cancel,
        InputState::Resolved(_) => wait,
    }
}

fn operate(kind: ApplyKind) -> Plan {
    Plan::Operate(OperationKind::Apply(kind))
}

/// What to do about a release that is there.
fn plan_existing(observed: &Observed<'_>, inputs: &InputDigest, seen: &Seen) -> Plan {
    match seen.status {
        status if status.is_interrupted_or_running() => plan_interrupted(observed, seen),
        ReleaseStatus::Uninstalled => operate(ApplyKind::Install),
        ReleaseStatus::Deployed => match &seen.mark {
            Some(mark) if mark.digest == *inputs => {
                if observed.described == Some(seen.revision) {
                    Plan::NoOp
                } else {
                    Plan::Describe
                }
            }
            Some(_) => operate(ApplyKind::Upgrade),
            None if observed.differs == Some(seen.revision) => operate(ApplyKind::Upgrade),
            None => Plan::Adopt { revision: seen.revision },
        },
        _ => operate(ApplyKind::Upgrade),
    }
}

/// A revision that says an operation is running, though none of ours is: ours is dead; another's may live. A removal
/// is always another's here: ours are of objects that are being deleted.
fn plan_interrupted(observed: &Observed<'_>, seen: &Seen) -> Plan {
    let ours = seen.mark.is_some() && seen.status != ReleaseStatus::Uninstalling;
    let until = seen.updated.and_then(|updated| updated.checked_add(FOREIGN_OPERATION_LIMIT).ok());
    match until {
        Some(until) if !ours && until > observed.now => {
            Plan::Wait(Wait::ForeignOperation { status: seen.status, until })
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
