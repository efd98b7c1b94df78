//! The state of a release in one word, for command output and metrics.

use std::fmt;

use chandler_api::reasons::ReleaseReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use super::ReleaseKind;

/// The state of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum State {
    /// The last operation failed, or the objects of the release are not healthy. It needs attention.
    Failed,
    /// Its cluster is unreachable.
    Unreachable,
    /// Its cluster is selected, but there is no release object yet.
    Missing,
    /// Waits for something, usually its cluster.
    Waiting,
    /// An operation is running or about to start.
    Updating,
    /// The release is being removed.
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

    /// Returns the state of a release object.
    pub fn of<R: ReleaseKind>(object: &R) -> Self {
        let status = object.status();
        let ready = status.and_then(|status| status.conditions.iter().find(|one| one.type_ == "Ready"));
        let meta = object.meta();
        let observed = status.and_then(|status| status.observed_generation);
        let outdated = observed.is_some() && observed != meta.generation;
        Self::from_ready(ready, meta.deletion_timestamp.is_some(), outdated)
    }

    /// Returns the state for the `Ready` condition of a release object. `deleted` means that the object is being
    /// deleted, `outdated` that its spec has changed since the condition was written.
    pub fn from_ready(ready: Option<&Condition>, deleted: bool, outdated: bool) -> Self {
        let Some(ready) = ready else { return Self::Waiting };
        match Self::from_condition(ready) {
            Self::Failed => Self::Failed,
            _ if deleted => Self::Removing,
            _ if outdated => Self::Updating,
            state => state,
        }
    }

    fn from_condition(ready: &Condition) -> Self {
        if ready.status == "True" {
            return Self::Ready;
        }
        // A reason of another version of Chandler is unknown here. Its message is shown anyway.
        ReleaseReason::parse(&ready.reason).map_or(Self::Waiting, Self::from_reason)
    }

    /// Returns the state of a release that is not ready for this reason.
    fn from_reason(reason: ReleaseReason) -> Self {
        match reason {
            ReleaseReason::ApplyFailed
            | ReleaseReason::ReadFailed
            | ReleaseReason::RemovalFailed
            | ReleaseReason::InvalidSpec
            | ReleaseReason::VerificationFailed
            | ReleaseReason::QuotaExceeded
            | ReleaseReason::GetCredentialsFailed
            | ReleaseReason::GetCaCertificateFailed
            | ReleaseReason::ReleaseCollision
            | ReleaseReason::NotAllowed
            | ReleaseReason::RetriesExhausted
            | ReleaseReason::RolledBack
            | ReleaseReason::Stalled
            | ReleaseReason::Unhealthy
            | ReleaseReason::StatusUnreadable => Self::Failed,
            ReleaseReason::ClusterUnreachable
            | ReleaseReason::ClusterUnauthorized
            | ReleaseReason::ClusterForbidden
            | ReleaseReason::GetKubeconfigFailed => Self::Unreachable,
            ReleaseReason::Preparing | ReleaseReason::Pending => Self::Updating,
            ReleaseReason::Removing
            | ReleaseReason::Removed
            | ReleaseReason::ClusterDeleting
            | ReleaseReason::StillNeeded => Self::Removing,
            ReleaseReason::GetClusterFailed
            | ReleaseReason::NotAvailable
            | ReleaseReason::Connecting
            | ReleaseReason::WaitingForDependencies
            | ReleaseReason::Suspended
            | ReleaseReason::PolicyNotFound
            | ReleaseReason::PolicyConflict
            | ReleaseReason::PolicyInvalid
            | ReleaseReason::Accepted
            | ReleaseReason::Healthy
            | ReleaseReason::HealthUnknown
            | ReleaseReason::InSync
            | ReleaseReason::Drifted
            | ReleaseReason::DriftUnknown
            | ReleaseReason::TestsSucceeded
            | ReleaseReason::TestsFailed
            | ReleaseReason::TestsUnknown
            | ReleaseReason::Available
            | ReleaseReason::Ready => Self::Waiting,
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
    use chandler_api::reasons::ReleaseVocabulary;

    use super::*;

    fn state(status: &str, reason: &str) -> State {
        let condition = serde_json::json!({
            "type": "Ready", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        State::from_ready(Some(&serde_json::from_value(condition).unwrap()), false, false)
    }

    const TABLE: [(ReleaseReason, State); 44] = [
        (ReleaseReason::Ready, State::Waiting),
        (ReleaseReason::Available, State::Waiting),
        (ReleaseReason::GetClusterFailed, State::Waiting),
        (ReleaseReason::ClusterDeleting, State::Removing),
        (ReleaseReason::NotAvailable, State::Waiting),
        (ReleaseReason::Connecting, State::Waiting),
        (ReleaseReason::GetKubeconfigFailed, State::Unreachable),
        (ReleaseReason::ClusterUnreachable, State::Unreachable),
        (ReleaseReason::ClusterUnauthorized, State::Unreachable),
        (ReleaseReason::ClusterForbidden, State::Unreachable),
        (ReleaseReason::GetCredentialsFailed, State::Failed),
        (ReleaseReason::GetCaCertificateFailed, State::Failed),
        (ReleaseReason::InvalidSpec, State::Failed),
        (ReleaseReason::VerificationFailed, State::Failed),
        (ReleaseReason::QuotaExceeded, State::Failed),
        (ReleaseReason::ReleaseCollision, State::Failed),
        (ReleaseReason::NotAllowed, State::Failed),
        (ReleaseReason::WaitingForDependencies, State::Waiting),
        (ReleaseReason::Suspended, State::Waiting),
        (ReleaseReason::PolicyNotFound, State::Waiting),
        (ReleaseReason::PolicyConflict, State::Waiting),
        (ReleaseReason::PolicyInvalid, State::Waiting),
        (ReleaseReason::Accepted, State::Waiting),
        (ReleaseReason::RetriesExhausted, State::Failed),
        (ReleaseReason::RolledBack, State::Failed),
        (ReleaseReason::Stalled, State::Failed),
        (ReleaseReason::Healthy, State::Waiting),
        (ReleaseReason::Unhealthy, State::Failed),
        (ReleaseReason::HealthUnknown, State::Waiting),
        (ReleaseReason::InSync, State::Waiting),
        (ReleaseReason::Drifted, State::Waiting),
        (ReleaseReason::DriftUnknown, State::Waiting),
        (ReleaseReason::TestsSucceeded, State::Waiting),
        (ReleaseReason::TestsFailed, State::Waiting),
        (ReleaseReason::TestsUnknown, State::Waiting),
        (ReleaseReason::StillNeeded, State::Removing),
        (ReleaseReason::Preparing, State::Updating),
        (ReleaseReason::Pending, State::Updating),
        (ReleaseReason::ApplyFailed, State::Failed),
        (ReleaseReason::ReadFailed, State::Failed),
        (ReleaseReason::RemovalFailed, State::Failed),
        (ReleaseReason::Removing, State::Removing),
        (ReleaseReason::Removed, State::Removing),
        (ReleaseReason::StatusUnreadable, State::Failed),
    ];

    #[test]
    fn every_reason_of_every_kind_has_a_state() {
        for &reason in ReleaseReason::ALL {
            let (_, expected) = TABLE.iter().find(|(row, _)| *row == reason).unwrap();
            for vocabulary in ReleaseVocabulary::ALL {
                let reason = reason.in_vocabulary(vocabulary).as_str();
                assert_eq!(state("False", reason), *expected, "{reason}");
                assert_eq!(state("True", reason), State::Ready);
            }
        }
    }

    #[test]
    fn an_unknown_reason_is_not_a_failure() {
        assert_eq!(state("False", "SomethingElseFailed"), State::Waiting);
    }

    #[test]
    fn only_a_failure_takes_precedence_over_deletion_and_a_new_spec() {
        let at = |reason: ReleaseReason, deleted, outdated| {
            let condition = serde_json::json!({
                "type": "Ready", "status": "False", "reason": reason.as_str(), "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            State::from_ready(Some(&serde_json::from_value(condition).unwrap()), deleted, outdated)
        };
        assert_eq!(at(ReleaseReason::NotAvailable, true, true), State::Removing);
        assert_eq!(at(ReleaseReason::NotAvailable, false, true), State::Updating);
        assert_eq!(at(ReleaseReason::RemovalFailed, true, true), State::Failed);
        assert_eq!(State::from_ready(None, false, false), State::Waiting);
    }
}
