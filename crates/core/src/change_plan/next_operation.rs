//! What the manager would do next with a release. The decisions are those of [`plan`]; this module only says what they mean for
//! users.

use jiff::Timestamp;

use super::ChangeAction;
use crate::{
    inventory::{ReleaseStatus, RevisionState},
    release::{
        ApplyKind, ClusterState, Collision, InventoryState, Observed, OperationKind, Plan, RemoveFinalizer,
        TestNeed, Wait, hold_install, plan, wait_text,
    },
};

/// The next operation of a release that is to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextOperation {
    pub action: ChangeAction,
    /// Why it would not start now, or what would be done instead.
    pub held: Option<String>,
    pub note: Option<String>,
}

/// What the removal of a release does on its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalEffect {
    Uninstall,
    /// Only the release object is removed.
    Leave(RemoveFinalizer),
    /// The release has to be read first.
    Unknown,
}

/// The removal of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextRemoval {
    pub effect: RemovalEffect,
    /// Why it would not start now.
    pub held: Option<String>,
}

/// Returns the next operation of a release that is to exist, with resolved inputs. `release` is its name for users.
///
/// The inventory must be known if the cluster is available.
pub fn next_operation(observed: &Observed<'_>, generation: Option<i64>, release: &str) -> NextOperation {
    let waiting = |wait: Wait| Some(wait_text(&wait, release));
    match observed.cluster {
        ClusterState::Missing => return unchanged(waiting(Wait::ClusterMissing)),
        ClusterState::Deleting => return unchanged(waiting(Wait::ClusterDeleting)),
        ClusterState::ControlPlaneNotInitialized => {
            // Nothing is deployed on such a cluster.
            return NextOperation {
                action: ChangeAction::Install,
                held: hold_install(observed).and_then(waiting),
                note: waiting(Wait::ControlPlaneNotInitialized),
            };
        }
        ClusterState::Available => {}
    }
    let newest = newest(observed);
    let described = Observed { described: newest.map(|newest| newest.revision), ..observed.clone() };
    let next = plan(&described, generation);
    // Inputs that were rolled back would be applied if the rollback did not hold them.
    let applicable = newest.map(|newest| RevisionState { rolled_back: None, ..newest.clone() });
    let inventory = match observed.inventory {
        InventoryState::Known(_) => InventoryState::Known(applicable.as_ref()),
        ref other => other.clone(),
    };
    let unheld = plan(&Observed { inventory, ..without_holds(&described) }, generation);
    let action = match &unheld {
        Plan::Operate(OperationKind::Apply(ApplyKind::Install)) => ChangeAction::Install,
        Plan::Operate(OperationKind::Apply(ApplyKind::Recover))
            if newest.is_some_and(|newest| newest.status == ReleaseStatus::Uninstalling) =>
        {
            ChangeAction::Install
        }
        Plan::Operate(_) => ChangeAction::Upgrade,
        Plan::Adopt { .. } => {
            return unchanged(Some("the release of another client would be adopted as it is".to_owned()));
        }
        _ => ChangeAction::Unchanged,
    };
    let rollback = || observed.requested_rollback.map_or(0, |request| request.revision);
    match next {
        Plan::Operate(OperationKind::Rollback) if action == ChangeAction::Unchanged => NextOperation {
            action: ChangeAction::Upgrade,
            held: None,
            note: Some(format!("revision {} would be restored, as requested", rollback())),
        },
        // Nothing would change, but the release is that of another object.
        Plan::Wait(wait @ Wait::Taken { .. }) if action == ChangeAction::Unchanged => {
            unchanged(waiting(wait))
        }
        _ if action == ChangeAction::Unchanged => unchanged(None),
        Plan::Operate(OperationKind::Rollback) => {
            let held = format!("revision {} would be restored instead, as requested", rollback());
            NextOperation { action, held: Some(held), note: None }
        }
        Plan::Operate(OperationKind::UninstallFailed) => {
            let held = "the last retry has failed, so that the policy uninstalls the release instead";
            NextOperation { action, held: Some(held.to_owned()), note: None }
        }
        Plan::Wait(wait) => NextOperation { action, held: waiting(wait), note: None },
        _ => NextOperation { action, held: None, note: None },
    }
}

/// Returns what the removal of a release does. `observed` is that of a release object that is being deleted.
pub fn next_removal(observed: &Observed<'_>, release: &str) -> NextRemoval {
    let confirmed = Observed { deleting: true, absence_confirmed: true, operation: None, ..observed.clone() };
    let mut unheld = without_holds(&confirmed);
    unheld.collision = match observed.collision {
        // The older object is removed first, and then this one removes the release.
        Collision::Taken { deleting: true, .. } => &Collision::None,
        collision => collision,
    };
    let effect = match plan(&unheld, None) {
        Plan::RemoveFinalizer(why) => RemovalEffect::Leave(why),
        Plan::Operate(_) => RemovalEffect::Uninstall,
        _ => RemovalEffect::Unknown,
    };
    let held = match plan(&confirmed, None) {
        Plan::Wait(wait) if wait != Wait::InventoryLoading => Some(wait_text(&wait, release)),
        _ => None,
    };
    NextRemoval { effect, held }
}

impl RemovalEffect {
    /// Returns why the release stays on the cluster, for users.
    pub fn note(self) -> Option<&'static str> {
        let Self::Leave(why) = self else { return None };
        Some(match why {
            RemoveFinalizer::Removed => "the release does not exist on the cluster",
            RemoveFinalizer::Moved => {
                "it is managed from another management cluster now; the release would stay"
            }
            RemoveFinalizer::ClusterGone => {
                "the Cluster does not exist or is being deleted, so that nothing is uninstalled"
            }
            RemoveFinalizer::Taken => "another object claims the release, which would stay on the cluster",
            RemoveFinalizer::InstallOnce => {
                "the strategy is InstallOnce: the release would stay on the cluster"
            }
            RemoveFinalizer::Orphaned => "the release would stay on the cluster",
        })
    }
}

fn unchanged(note: Option<String>) -> NextOperation {
    NextOperation { action: ChangeAction::Unchanged, held: None, note }
}

fn newest<'a>(observed: &Observed<'a>) -> Option<&'a RevisionState> {
    match observed.inventory {
        InventoryState::Known(newest) => newest,
        _ => None,
    }
}

/// Returns the same state without anything that holds an operation.
fn without_holds<'a>(observed: &Observed<'a>) -> Observed<'a> {
    Observed {
        paused: false,
        placement_paused: false,
        placement_changing: false,
        suspended: false,
        policy_missing: None,
        refused: None,
        remediation: None,
        retry_at: None,
        collision: &Collision::None,
        unmet: &[],
        needed_by: &[],
        // The operation of another client has ended or was interrupted.
        unchanged_since: Some(Timestamp::MIN),
        operation: None,
        rollback_to: None,
        requested_rollback: None,
        compare: false,
        tests: TestNeed::None,
        failure: None,
        ..observed.clone()
    }
}

#[cfg(test)]
mod tests;
