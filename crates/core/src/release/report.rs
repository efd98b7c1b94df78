//! The conditions of a release object, derived from its plan.

use chandler_api::reasons::{ReleaseReason, ReleaseVocabulary};
use jiff::Timestamp;

use super::{ApplyKind, OperationKind, Plan, RemoveFinalizer, Step, Wait};
use crate::{
    conditions::{NewCondition, Status, ready_summary},
    failure::{Category, Failure},
};

/// The progress of an operation, for users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub step: String,
}

/// The conditions of a release object, `Ready` first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub conditions: Vec<NewCondition>,
}

/// How a user resolves a collision.
pub const ANOTHER_NAME: &str = "give one of them another releaseName or namespace";
const CLUSTER_AVAILABLE: &str = "ClusterAvailable";

/// Returns the conditions to write, or `None` to keep the current ones.
///
/// The conditions of paused objects are kept. So are those of an object that `has_reported` before while the inventory
/// of its cluster is loading, for example after a restart.
pub fn report(
    plan: &Plan,
    vocabulary: ReleaseVocabulary,
    release: &str,
    progress: Option<&Progress>,
    has_reported: bool,
) -> Option<Report> {
    if has_reported && *plan == Plan::Wait(Wait::InventoryLoading) {
        return None;
    }
    let cluster = cluster_condition(plan, vocabulary);
    let release = if cluster.status == Status::True {
        release_condition(plan, vocabulary, release, progress)?
    } else if matches!(plan, Plan::Wait(Wait::Paused)) {
        return None;
    } else {
        NewCondition {
            type_: vocabulary.release_ready(),
            status: Status::Unknown,
            reason: cluster.reason,
            message: cluster.message.clone(),
        }
    };
    let parts = [cluster, release];
    Some(Report {
        conditions: [ready_summary(&parts, ReleaseReason::Ready.in_vocabulary(vocabulary))]
            .into_iter()
            .chain(parts)
            .collect(),
    })
}

fn cluster_condition(plan: &Plan, vocabulary: ReleaseVocabulary) -> NewCondition {
    let (status, reason, message) = match plan {
        Plan::Wait(Wait::ClusterMissing) => (
            Status::False,
            ReleaseReason::GetClusterFailed,
            "the Cluster does not exist; it was deleted, or spec.clusterRef is wrong".to_owned(),
        ),
        Plan::Wait(Wait::ClusterDeleting) => {
            (Status::False, ReleaseReason::ClusterDeleting, "the Cluster is being deleted".to_owned())
        }
        Plan::Wait(Wait::ControlPlaneNotInitialized) => (
            Status::False,
            ReleaseReason::NotAvailable,
            "waiting for the Cluster's control plane to be initialized".to_owned(),
        ),
        Plan::Wait(Wait::InventoryLoading) => (
            Status::Unknown,
            ReleaseReason::Connecting,
            "reading the releases of the workload cluster".to_owned(),
        ),
        Plan::Wait(Wait::Unavailable(failure)) => {
            let reason = unavailable_reason(failure);
            // Nothing is known about a cluster that does not answer.
            let is_unknown = reason == ReleaseReason::ClusterUnreachable;
            (if is_unknown { Status::Unknown } else { Status::False }, reason, failure.to_string())
        }
        Plan::Wait(Wait::Backoff { failure, until, .. }) => match source_secret_reason(failure) {
            Some(reason) => (Status::False, reason, retry_message(failure, *until)),
            None => available(),
        },
        _ => available(),
    };
    NewCondition { type_: CLUSTER_AVAILABLE, status, reason: reason.in_vocabulary(vocabulary), message }
}

fn available() -> (Status, ReleaseReason, String) {
    (Status::True, ReleaseReason::Available, String::new())
}

fn unavailable_reason(failure: &Failure) -> ReleaseReason {
    match failure.category {
        Category::InvalidSpec => ReleaseReason::GetKubeconfigFailed,
        Category::Unauthorized => ReleaseReason::ClusterUnauthorized,
        Category::Forbidden => ReleaseReason::ClusterForbidden,
        _ => ReleaseReason::ClusterUnreachable,
    }
}

/// Returns the reason for a failure of a Secret of the source. CAAPH reports these reasons in the condition
/// `ClusterAvailable`, so Chandler does too.
fn source_secret_reason(failure: &Failure) -> Option<ReleaseReason> {
    match failure.category {
        Category::GetCredentialsFailed => Some(ReleaseReason::GetCredentialsFailed),
        Category::GetCaCertificateFailed => Some(ReleaseReason::GetCaCertificateFailed),
        _ => None,
    }
}

fn release_condition(
    plan: &Plan,
    vocabulary: ReleaseVocabulary,
    release: &str,
    progress: Option<&Progress>,
) -> Option<NewCondition> {
    let step = progress.map(|progress| progress.step.as_str()).filter(|step| !step.is_empty());
    let (status, reason, message) = match plan {
        Plan::NoOp | Plan::Describe => (Status::True, ReleaseReason::Ready, String::new()),
        Plan::Resolve | Plan::Adopt { .. } => {
            (Status::False, ReleaseReason::Preparing, format!("preparing release {release}"))
        }
        Plan::Operate(kind) | Plan::Wait(Wait::Operating(kind)) => {
            (Status::False, reason_of(*kind), operating(*kind, release, step))
        }
        Plan::Cancel(kind) => {
            (Status::False, reason_of(*kind), format!("canceling the running operation of release {release}"))
        }
        Plan::Wait(Wait::ForeignOperation { status, until }) => (
            Status::False,
            ReleaseReason::Pending,
            format!(
                "release {release} is {}: the operation of another client is running or was interrupted; Chandler \
                 takes over at {until}",
                status.as_str()
            ),
        ),
        Plan::Wait(Wait::Backoff { step, failure, until }) => {
            let reason = match step {
                Step::Read => ReleaseReason::ReadFailed,
                Step::Remove => ReleaseReason::RemovalFailed,
                // A missing signature has its own reason, because it is not a failure of Helm.
                _ if failure.category == Category::VerificationFailed => ReleaseReason::VerificationFailed,
                Step::Resolve | Step::Apply => ReleaseReason::ApplyFailed,
            };
            (Status::False, reason, retry_message(failure, *until))
        }
        Plan::Wait(Wait::Taken { by }) => (
            Status::False,
            ReleaseReason::ReleaseCollision,
            format!("release {release} already belongs to {by}; {ANOTHER_NAME}"),
        ),
        Plan::Wait(Wait::Dependencies { on }) => (
            Status::False,
            ReleaseReason::WaitingForDependencies,
            format!("waiting for {} to be ready", on.join(", ")),
        ),
        Plan::Wait(Wait::Dependents { on }) => (
            Status::False,
            ReleaseReason::StillNeeded,
            format!("waiting for {} to be removed, which depends on it", on.join(", ")),
        ),
        Plan::RemoveFinalizer(RemoveFinalizer::Removed) => {
            (Status::False, ReleaseReason::Removed, format!("release {release} has been removed"))
        }
        Plan::RemoveFinalizer(_) => (
            Status::False,
            ReleaseReason::Removing,
            format!("finalizer removed; release {release} is left in place"),
        ),
        Plan::ConfirmAbsence => {
            (Status::False, ReleaseReason::Removing, format!("checking that release {release} is removed"))
        }
        Plan::Wait(_) | Plan::Withdraw => return None,
    };
    Some(NewCondition {
        type_: vocabulary.release_ready(),
        status,
        reason: reason.in_vocabulary(vocabulary),
        message,
    })
}

/// Returns the reason while an operation is running.
fn reason_of(operation: OperationKind) -> ReleaseReason {
    match operation {
        OperationKind::Apply(_) => ReleaseReason::Pending,
        OperationKind::Remove => ReleaseReason::Removing,
    }
}

fn retry_message(failure: &Failure, until: Timestamp) -> String {
    format!("{}: {failure} (next retry at {until})", failure.category)
}

fn operating(kind: OperationKind, release: &str, step: Option<&str>) -> String {
    let verb = match kind {
        OperationKind::Apply(ApplyKind::Install) => "installing",
        OperationKind::Apply(ApplyKind::Upgrade) => "upgrading",
        OperationKind::Apply(ApplyKind::Recover) => "recovering",
        OperationKind::Remove => "removing",
    };
    match step {
        Some(step) => format!("{verb} release {release}: {step}"),
        None => format!("{verb} release {release}"),
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;

    use super::*;
    use crate::release::ReleaseKind;

    fn conditions(plan: &Plan) -> Option<Vec<(&'static str, Status, &'static str)>> {
        let report = report(plan, HelmReleaseProxy::VOCABULARY, "default/hello", None, false)?;
        Some(report.conditions.iter().map(|c| (c.type_, c.status, c.reason.as_str())).collect())
    }

    #[test]
    fn conditions_follow_the_plan() {
        let unreachable = Failure::new(Category::Unreachable, "no route");
        let until = Timestamp::from_second(9).unwrap();
        let backoff =
            |step, failure: &Failure| Plan::Wait(Wait::Backoff { step, failure: failure.clone(), until });
        let rows = [
            (Plan::NoOp, (Status::True, "Ready"), (Status::True, "Available"), (Status::True, "Ready")),
            (
                Plan::Operate(OperationKind::Apply(ApplyKind::Install)),
                (Status::False, "HelmReleasePending"),
                (Status::True, "Available"),
                (Status::False, "HelmReleasePending"),
            ),
            (
                Plan::Wait(Wait::Unavailable(unreachable.clone())),
                (Status::Unknown, "ClusterUnreachable"),
                (Status::Unknown, "ClusterUnreachable"),
                (Status::Unknown, "ClusterUnreachable"),
            ),
            (
                Plan::Wait(Wait::Unavailable(Failure::new(Category::Unauthorized, "expired"))),
                (Status::False, "ClusterUnauthorized"),
                (Status::False, "ClusterUnauthorized"),
                (Status::Unknown, "ClusterUnauthorized"),
            ),
            (
                backoff(Step::Apply, &unreachable),
                (Status::False, "HelmInstallOrUpgradeFailed"),
                (Status::True, "Available"),
                (Status::False, "HelmInstallOrUpgradeFailed"),
            ),
            (
                backoff(Step::Read, &unreachable),
                (Status::False, "HelmReleaseGetFailed"),
                (Status::True, "Available"),
                (Status::False, "HelmReleaseGetFailed"),
            ),
            (
                backoff(Step::Remove, &unreachable),
                (Status::False, "HelmReleaseDeletionFailed"),
                (Status::True, "Available"),
                (Status::False, "HelmReleaseDeletionFailed"),
            ),
            (
                backoff(Step::Resolve, &Failure::new(Category::GetCaCertificateFailed, "no key ca.crt")),
                (Status::False, "GetCACertificateFailed"),
                (Status::False, "GetCACertificateFailed"),
                (Status::Unknown, "GetCACertificateFailed"),
            ),
            (
                backoff(Step::Resolve, &Failure::new(Category::GetCredentialsFailed, "no Secret")),
                (Status::False, "GetCredentialsFailed"),
                (Status::False, "GetCredentialsFailed"),
                (Status::Unknown, "GetCredentialsFailed"),
            ),
            (
                backoff(Step::Resolve, &Failure::new(Category::VerificationFailed, "it is not signed")),
                (Status::False, "VerificationFailed"),
                (Status::True, "Available"),
                (Status::False, "VerificationFailed"),
            ),
            (
                Plan::RemoveFinalizer(RemoveFinalizer::Removed),
                (Status::False, "HelmReleaseDeleted"),
                (Status::True, "Available"),
                (Status::False, "HelmReleaseDeleted"),
            ),
        ];
        for (plan, ready, cluster, release) in rows {
            let expected = vec![
                ("Ready", ready.0, ready.1),
                ("ClusterAvailable", cluster.0, cluster.1),
                ("HelmReleaseReady", release.0, release.1),
            ];
            assert_eq!(conditions(&plan), Some(expected), "{plan:?}");
        }
    }

    #[test]
    fn paused_objects_keep_their_conditions() {
        assert_eq!(conditions(&Plan::Wait(Wait::Paused)), None);
    }

    #[test]
    fn a_restart_keeps_the_conditions() {
        let loading = Plan::Wait(Wait::InventoryLoading);
        let report = |has_reported| {
            report(&loading, HelmReleaseProxy::VOCABULARY, "default/hello", None, has_reported)
        };
        assert!(report(false).is_some());
        assert_eq!(report(true), None);
    }
}
