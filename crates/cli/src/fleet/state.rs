//! The one word that a person reads first.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use super::model::Release;

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

    pub fn of(release: &Release) -> Self {
        let Some(ready) = release.ready() else { return Self::Waiting };
        let said = Self::said(ready);
        if said == Self::Failed {
            said
        } else if release.deleted.is_some() {
            Self::Removing
        } else if release.status.observed_generation.is_some_and(|seen| Some(seen) != release.generation) {
            Self::Updating
        } else {
            said
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
    use chandler_core::release::ReleaseFace as _;

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
