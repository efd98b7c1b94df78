//! The one word that a person reads first, and that metrics count.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use super::ReleaseFace;

/// How a release is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum State {
    /// Failed; it is tried again, but look at it.
    Failed,
    /// Its cluster cannot be reached.
    Unreachable,
    /// Its cluster is selected, but there is no release object yet.
    Missing,
    /// Waits for something, usually its cluster.
    Waiting,
    /// An operation runs, or is about to.
    Updating,
    /// It is on its way out.
    Removing,
    Ready,
}

impl State {
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Updating,
        Self::Removing,
        Self::Waiting,
        Self::Missing,
        Self::Unreachable,
        Self::Failed,
    ];

    /// Of a release object.
    pub fn of<R: ReleaseFace>(object: &R) -> Self {
        let status = object.status();
        let ready = status.and_then(|status| status.conditions.iter().find(|one| one.type_ == "Ready"));
        let meta = object.meta();
        let seen = status.and_then(|status| status.observed_generation);
        Self::told(ready, meta.deletion_timestamp.is_some(), seen.is_some() && seen != meta.generation)
    }

    /// What the Ready condition means, of an object that may be on its way out, or have changed since.
    pub fn told(ready: Option<&Condition>, deleted: bool, outdated: bool) -> Self {
        let Some(ready) = ready else { return Self::Waiting };
        match Self::said(ready) {
            Self::Failed => Self::Failed,
            _ if deleted => Self::Removing,
            _ if outdated => Self::Updating,
            said => said,
        }
    }

    /// Kinds differ in their words, not in how the words end.
    fn said(ready: &Condition) -> Self {
        let reason = ready.reason.as_str();
        if ready.status == "True" {
            return Self::Ready;
        }
        match reason {
            "ClusterUnreachable" | "ClusterUnauthorized" | "ClusterForbidden" | "GetKubeconfigFailed" => {
                Self::Unreachable
            }
            "ReleaseCollision" | "StatusUnreadable" => Self::Failed,
            "GetClusterFailed" => Self::Waiting,
            _ if reason.ends_with("Failed") => Self::Failed,
            _ if reason.ends_with("Pending") || reason.starts_with("Preparing") => Self::Updating,
            _ if reason.ends_with("Deleting") || reason.ends_with("Deleted") => Self::Removing,
            _ => Self::Waiting,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Updating => "Updating",
            Self::Removing => "Removing",
            Self::Waiting => "Waiting",
            Self::Missing => "Missing",
            Self::Unreachable => "Unreachable",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: &str, reason: &str) -> State {
        let condition = serde_json::json!({
            "type": "Ready", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        State::said(&serde_json::from_value(condition).unwrap())
    }

    #[test]
    fn every_reason_has_a_state() {
        let words = chandler_api::addons::HelmReleaseProxy::VOCABULARY;
        let rows = [
            ("Ready", State::Waiting),
            (words.preparing, State::Updating),
            (words.pending, State::Updating),
            (words.failed, State::Failed),
            (words.deletion_failed, State::Failed),
            (words.unreadable, State::Failed),
            (words.deleted, State::Removing),
            (words.deleting, State::Removing),
            ("GetCACertificateFailed", State::Failed),
            ("GetCredentialsFailed", State::Failed),
            ("ReleaseCollision", State::Failed),
            ("ClusterUnreachable", State::Unreachable),
            ("GetKubeconfigFailed", State::Unreachable),
            ("GetClusterFailed", State::Waiting),
            ("NotAvailable", State::Waiting),
            ("Connecting", State::Waiting),
            ("ClusterDeleting", State::Removing),
        ];
        for (reason, state) in rows {
            assert_eq!(said("False", reason), state, "{reason}");
            assert_eq!(said("True", reason), State::Ready);
        }
    }
}
