//! What [`plan`](super::plan) depends on.

use std::time::Duration;

use chandler_api::extensions::Remediation;
use jiff::Timestamp;

use super::super::{Collision, Operation, RequestedRollback, Strategy, TestNeed, Wait};
use crate::{
    digest::InputDigest,
    failure::{Category, Failure},
    inventory::RevisionState,
    tenancy::Refusal,
};

/// The observed state of a release: everything that [`plan`](super::plan) depends on.
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
    /// Whether the object, its placement or its policy is suspended: no operation is started.
    pub suspended: bool,
    /// The name of the placement's policy if it does not exist: no operation is started.
    pub policy_missing: Option<&'a str>,
    /// Why AddonTenancies do not let the release be changed.
    pub refused: Option<&'a Refusal>,
    /// What the policy does after a failure. `None` means that it is retried until it succeeds.
    pub remediation: Option<Remediation>,
    /// When a user has asked to try again. Earlier failures do not count from then on.
    pub retry_at: Option<Timestamp>,
    pub cluster: ClusterState,
    pub strategy: Strategy,
    pub collision: &'a Collision,
    /// Dependencies that are not ready, for users.
    pub unmet: &'a [String],
    /// Release objects that depend on this one.
    pub needed_by: &'a [String],
    /// Whether the release is uninstalled before its Cluster is deleted.
    pub remove_with_cluster: bool,
    /// Whether the object is being deleted because its placement no longer selects the cluster, and the policy leaves the
    /// release there. Not set if the object is deleted for another reason, such as a new name of the release.
    pub orphan: bool,
    /// Whether Chandler has installed the release at least once.
    pub installed_before: bool,
    pub inventory: InventoryState<'a>,
    /// Since when the record of the newest revision is unchanged, if it is pending: see
    /// [`newest_unchanged_since`](crate::inventory::ReleaseInventory::newest_unchanged_since).
    pub unchanged_since: Option<Timestamp>,
    /// Timeout of one operation on the release.
    pub timeout: Duration,
    pub inputs: InputState<'a>,
    /// Chandler's own operation in flight, if any.
    pub operation: Option<InFlight<'a>>,
    /// The revision that the status describes.
    pub described: Option<u32>,
    /// A revision by another client that was read and differs from the desired state.
    pub differs: Option<u32>,
    /// The revision that a rollback would restore, if there is one and the tool can: see
    /// [`rollback_target`](crate::inventory::ReleaseInventory::rollback_target).
    pub rollback_to: Option<u32>,
    /// The revision that a user wants to restore instead of the current inputs, or that was deployed before an aborted rollout.
    pub requested_rollback: Option<&'a RequestedRollback>,
    /// Whether objects of the release have to be compared with their package: see
    /// [`DriftState::next`](crate::drift::DriftState::next).
    pub compare: bool,
    /// Whether the policy has other rules than the comparison in flight.
    pub comparison_is_outdated: bool,
    /// Whether the tests of the newest revision have to run, or have failed.
    pub tests: TestNeed,
    /// Whether the tool has confirmed that the release does not exist. The inventory may lag behind an operation.
    pub absence_confirmed: bool,
    pub failure: Option<&'a PastFailure>,
    pub now: Timestamp,
}

impl Observed<'_> {
    /// Returns when a user has asked to try again, unless that is in the future.
    pub(super) fn requested_retry(&self) -> Option<Timestamp> {
        self.retry_at.filter(|retry_at| *retry_at <= self.now)
    }

    /// Returns why the release is not allowed, if that is known.
    pub(super) fn not_allowed(&self) -> Option<Wait> {
        match self.refused? {
            Refusal::NotAllowed(failure) => Some(Wait::NotAllowed { failure: failure.clone() }),
            Refusal::Unknown(_) => None,
        }
    }

    /// Returns why no operation is started that may not be allowed.
    pub(super) fn not_known_to_be_allowed(&self) -> Option<Wait> {
        Some(match self.refused? {
            Refusal::NotAllowed(failure) => Wait::NotAllowed { failure: failure.clone() },
            Refusal::Unknown(failure) => Wait::AwaitingRules { failure: failure.clone() },
        })
    }

    /// Returns why it is not known whether the release is allowed.
    pub(super) fn rules_unknown(&self) -> Option<Wait> {
        match self.refused? {
            Refusal::NotAllowed(_) => None,
            Refusal::Unknown(failure) => Some(Wait::RulesUnknown { failure: failure.clone() }),
        }
    }
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

/// After so many ends of the package tool's process in a row, the step that has caused them is not tried again.
const MAX_CRASHES: u32 = 3;

/// The last failure, until the step that failed succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// Identifies the step that failed, see [`failure_key`].
    pub key: String,
    pub failure: Failure,
    pub retry_at: Timestamp,
    pub at: Timestamp,
    /// How often these inputs have failed through the release's own fault.
    pub attempts: u32,
    /// The key of the inputs that `attempts` counts. It differs from `key` if another step has failed since.
    pub attempted: String,
    /// How often in a row the process of the package tool has ended because of the release.
    pub crashes: u32,
    /// The key of the step that `crashes` counts. It differs from `key` if another step has failed since.
    pub crashed: String,
}

impl PastFailure {
    /// Returns whether a user has asked to try again since, so that the failure does not count.
    pub fn is_overridden(&self, retry_at: Option<Timestamp>) -> bool {
        retry_at.is_some_and(|retry_at| retry_at > self.at)
    }

    /// Returns the failure that has ended the process of the package tool.
    pub fn crash(&self) -> Failure {
        if self.crashed == self.key {
            return self.failure.clone();
        }
        Failure::new(Category::ToolCrashed, "the package tool has ended while it worked on the release")
    }

    /// Returns whether the step has ended the process of the package tool so often that it is not tried again.
    pub fn is_stalled(&self) -> bool {
        self.crashes >= MAX_CRASHES
    }
}

/// Keys of the steps that can fail. Backoff applies to a step with the same key; a step with another key is tried at
/// once.
pub mod failure_key {
    use crate::digest::InputDigest;

    /// Resolving the inputs of a generation of the spec, or reading them before they are applied.
    pub fn resolve(generation: Option<i64>) -> String {
        format!("generation-{}", generation.unwrap_or_default())
    }

    /// Reading the release that should have been created from these inputs. `None` means that they are not known.
    pub fn read(generation: Option<i64>, inputs: Option<&InputDigest>) -> String {
        match inputs {
            Some(inputs) => format!("read-{}", apply(generation, inputs)),
            None => format!("read-{}", generation.unwrap_or_default()),
        }
    }

    /// Applying these inputs for a generation of the spec.
    pub fn apply(generation: Option<i64>, inputs: &InputDigest) -> String {
        format!("{}-{inputs}", generation.unwrap_or_default())
    }

    /// Rolling back after applying these inputs has failed.
    pub fn rollback(generation: Option<i64>, inputs: &InputDigest) -> String {
        format!("rollback-{}", apply(generation, inputs))
    }

    /// Removing the release after applying these inputs has failed.
    pub fn uninstall_failed(generation: Option<i64>, inputs: &InputDigest) -> String {
        format!("uninstall-failed-{}", apply(generation, inputs))
    }

    /// Comparing objects with their package. The failure says nothing about the release, so it is not recorded with it.
    pub fn compare() -> String {
        "compare".to_owned()
    }

    /// Returns whether the key is one of [`apply`].
    pub(crate) fn is_apply(key: &str) -> bool {
        key.starts_with(|first: char| first.is_ascii_digit()) && key.contains('-')
    }

    /// Removing the release.
    pub fn remove() -> String {
        "remove".to_owned()
    }
}
