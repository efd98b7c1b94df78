//! How long the deletion of a Cluster waits until the releases that own resources outside of it are uninstalled.

use std::time::Duration;

use jiff::Timestamp;

use crate::proceed::{PROCEED_ANNOTATION, proceeds};

/// The runtime hook with which Cluster API asks whether it may delete a Cluster.
const BEFORE_CLUSTER_DELETE: &str = "BeforeClusterDelete";

/// How long a deletion waits by default.
pub const DEFAULT_UNINSTALL_TIMEOUT: Duration = Duration::from_mins(10);

/// Returns until when a deletion waits for uninstalls. `None` means that it does not: the Cluster is not being deleted, or a user
/// lets the deletion proceed.
///
/// `deleted` is the deletion timestamp of the Cluster, and `proceed` its annotation
/// [`crate::proceed::PROCEED_ANNOTATION`].
pub fn uninstall_deadline(
    deleted: Option<Timestamp>,
    proceed: Option<&str>,
    timeout: Duration,
) -> Option<Timestamp> {
    if proceeds(proceed, BEFORE_CLUSTER_DELETE) { None } else { deleted?.checked_add(timeout).ok() }
}

/// An add-on that a deletion waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingUninstall {
    pub addon: String,
    /// The reason of the condition `Ready` of its release object, if it is not ready.
    pub reason: Option<String>,
}

/// Returns what a deletion waits for, until when, and what a user can do. `deadline` is `None` if it is not known yet.
pub fn waiting_text(pending: &[PendingUninstall], deadline: Option<Timestamp>) -> String {
    let until = deadline.map(|at| at.strftime(" until %H:%M:%SZ").to_string()).unwrap_or_default();
    let addons: Vec<_> = pending
        .iter()
        .map(|PendingUninstall { addon, reason }| match reason {
            Some(reason) => format!("{addon} to be uninstalled ({reason})"),
            None => format!("{addon} to be uninstalled"),
        })
        .collect();
    format!(
        "waiting{until} for {}; to delete anyway, set annotation {PROCEED_ANNOTATION}: {BEFORE_CLUSTER_DELETE}",
        addons.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_waits_until_its_deadline_unless_a_user_lets_it_proceed() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let rows = [
            ("not deleted", None, None, None),
            ("not deleted, annotated", None, Some("*"), None),
            ("deleted", Some(at(1000)), None, Some(at(1600))),
            ("another hook is annotated", Some(at(1000)), Some("BeforeClusterUpgrade"), Some(at(1600))),
            ("annotated", Some(at(1000)), Some("BeforeClusterDelete"), None),
            ("all are annotated", Some(at(1000)), Some("*"), None),
        ];
        for (name, deleted, proceed, expected) in rows {
            assert_eq!(uninstall_deadline(deleted, proceed, DEFAULT_UNINSTALL_TIMEOUT), expected, "{name}");
        }
        assert_eq!(
            uninstall_deadline(Some(at(1000)), None, Duration::ZERO),
            Some(at(1000)),
            "no time to wait"
        );
    }

    #[test]
    fn a_deletion_says_what_it_waits_for_and_how_to_proceed() {
        let pending = |addon: &str, reason: Option<&str>| PendingUninstall {
            addon: addon.to_owned(),
            reason: reason.map(str::to_owned),
        };
        let deadline = Timestamp::from_second(45_296).ok();
        let proceed = "; to delete anyway, set annotation chandler.dev/proceed: BeforeClusterDelete";
        let rows = [
            (
                vec![pending("external", Some("Suspended"))],
                deadline,
                "waiting until 12:34:56Z for external to be uninstalled (Suspended)",
            ),
            (
                vec![pending("dns", None), pending("external", Some("Paused"))],
                None,
                "waiting for dns to be uninstalled, external to be uninstalled (Paused)",
            ),
        ];
        for (pending, deadline, expected) in rows {
            assert_eq!(waiting_text(&pending, deadline), format!("{expected}{proceed}"));
        }
    }
}
