//! How long the deletion of a Cluster waits for the removal of releases that own resources outside of it.

use std::time::Duration;

use jiff::Timestamp;

use crate::proceed::proceeds;

/// The runtime hook with which Cluster API asks whether it may delete a Cluster.
pub const BEFORE_CLUSTER_DELETE: &str = "BeforeClusterDelete";

/// How long a deletion waits, unless the manager is told otherwise.
pub const DEFAULT_REMOVAL_LIMIT: Duration = Duration::from_mins(10);

/// Returns until when a deletion waits for removals. `None` means that it does not: the Cluster is not being deleted, or a user
/// lets the deletion proceed.
///
/// `deleted` is the deletion timestamp of the Cluster, and `proceed` its annotation
/// [`crate::proceed::PROCEED_ANNOTATION`].
pub fn removals_until(
    deleted: Option<Timestamp>,
    proceed: Option<&str>,
    limit: Duration,
) -> Option<Timestamp> {
    if proceeds(proceed, BEFORE_CLUSTER_DELETE) { None } else { deleted?.checked_add(limit).ok() }
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
            assert_eq!(removals_until(deleted, proceed, DEFAULT_REMOVAL_LIMIT), expected, "{name}");
        }
        assert_eq!(removals_until(Some(at(1000)), None, Duration::ZERO), Some(at(1000)), "no time to wait");
    }
}
