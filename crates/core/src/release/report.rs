//! What a release object says about itself: conditions from the plan.

use chandler_api::reasons::{ReleaseReason, ReleaseVocabulary};
use jiff::Timestamp;

use super::{ApplyKind, OperationKind, Plan, RemoveFinalizer, Step, Wait};
use crate::{
    conditions::{Status, Wanted, summary},
    failure::{Category, Failure},
};

/// How far an operation is, for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub step: String,
}

/// The conditions of a release object: `Ready` first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub conditions: Vec<Wanted>,
}

/// What to do about a collision.
pub const ANOTHER_NAME: &str = "give one of them another releaseName or namespace";
const CLUSTER_AVAILABLE: &str = "ClusterAvailable";

/// What to say, or None where the last word stands: paused objects are left alone, and an object that has `spoken`
/// before does not take its word back just because its cluster is being read anew.
pub fn report(
    plan: &Plan,
    vocabulary: ReleaseVocabulary,
    release: &str,
    progress: Option<&Progress>,
    spoken: bool,
) -> Option<Report> {
    if spoken && *plan == Plan::Wait(Wait::InventoryLoading) {
        return None;
    }
    let cluster = cluster_condition(plan, vocabulary);
    let release = if cluster.status == Status::True {
        release_condition(plan, vocabulary, release, progress)?
    } else if matches!(plan, Plan::Wait(Wait::Paused)) {
        return None;
    } else {
        Wanted {
            type_: vocabulary.release_ready(),
            status: Status::Unknown,
            reason: cluster.reason,
            message: cluster.message.clone(),
        }
    };
    let parts = [cluster, release];
    Some(Report {
        conditions: [summary(&parts, ReleaseReason::Ready.spelled(vocabulary))]
            .into_iter()
            .chain(parts)
            .collect(),
    })
}

fn cluster_condition(plan: &Plan, vocabulary: ReleaseVocabulary) -> Wanted {
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
            (Status::False, unavailable_reason(failure), failure.to_string())
        }
        Plan::Wait(Wait::Backoff { failure, until, .. }) => match source_secret_reason(failure) {
            Some(reason) => (Status::False, reason, again(failure, *until)),
            None => available(),
        },
        _ => available(),
    };
    Wanted { type_: CLUSTER_AVAILABLE, status, reason: reason.spelled(vocabulary), message }
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

/// The reason if a Secret of the source cannot be used. That is not the cluster's fault, but users of these reasons look
/// for them in the cluster's condition.
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
) -> Option<Wanted> {
    let step = progress.map(|progress| progress.step.as_str()).filter(|step| !step.is_empty());
    let (status, reason, message) = match plan {
        Plan::NoOp | Plan::Describe => (Status::True, ReleaseReason::Ready, String::new()),
        Plan::Resolve | Plan::Adopt { .. } => {
            (Status::False, ReleaseReason::Preparing, format!("preparing release {release}"))
        }
        Plan::Operate(kind) | Plan::Wait(Wait::Operating(kind)) => {
            let reason = match kind {
                OperationKind::Apply(_) => ReleaseReason::Pending,
                OperationKind::Remove => ReleaseReason::Removing,
            };
            (Status::False, reason, operating(*kind, release, step))
        }
        Plan::Cancel => (
            Status::False,
            ReleaseReason::Removing,
            format!("stopping the running operation of release {release}"),
        ),
        Plan::Wait(Wait::ForeignOperation { status, until }) => (
            Status::False,
            ReleaseReason::Pending,
            format!(
                "release {release} is {}: another client works on it, or died doing so; \
                 Chandler takes over at {until}",
                status.as_str()
            ),
        ),
        Plan::Wait(Wait::Backoff { step, failure, until }) => {
            let reason = match step {
                Step::Read => ReleaseReason::ReadFailed,
                Step::Remove => ReleaseReason::RemovalFailed,
                // Who has to sign the package looks for this reason, not for a failure of Helm.
                _ if failure.category == Category::VerificationFailed => ReleaseReason::VerificationFailed,
                Step::Resolve | Step::Apply => ReleaseReason::ApplyFailed,
            };
            (Status::False, reason, again(failure, *until))
        }
        Plan::Wait(Wait::Taken { by }) => (
            Status::False,
            ReleaseReason::ReleaseCollision,
            format!("release {release} belongs to {by} already; {ANOTHER_NAME}"),
        ),
        Plan::Wait(Wait::Dependencies { on }) => (
            Status::False,
            ReleaseReason::WaitingForDependencies,
            format!("waiting until {} is ready", on.join(", ")),
        ),
        Plan::Wait(Wait::Dependents { on }) => (
            Status::False,
            ReleaseReason::StillNeeded,
            format!("stays until {} is removed, which needs it", on.join(", ")),
        ),
        Plan::RemoveFinalizer(RemoveFinalizer::Removed) => {
            (Status::False, ReleaseReason::Removed, format!("release {release} has been removed"))
        }
        Plan::RemoveFinalizer(_) => {
            (Status::False, ReleaseReason::Removing, format!("release {release} is let go"))
        }
        Plan::Wait(_) => return None,
    };
    Some(Wanted { type_: vocabulary.release_ready(), status, reason: reason.spelled(vocabulary), message })
}

fn again(failure: &Failure, until: Timestamp) -> String {
    format!("{}: {failure} (next try at {until})", failure.category)
}

fn operating(kind: OperationKind, release: &str, step: Option<&str>) -> String {
    let doing = match kind {
        OperationKind::Apply(ApplyKind::Install) => "installing",
        OperationKind::Apply(ApplyKind::Upgrade) => "upgrading",
        OperationKind::Apply(ApplyKind::Recover) => "recovering",
        OperationKind::Remove => "removing",
    };
    match step {
        Some(step) => format!("{doing} release {release}: {step}"),
        None => format!("{doing} release {release}"),
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;

    use super::*;
    use crate::release::ReleaseKind;

    fn said(plan: &Plan) -> Option<Vec<(&'static str, Status, &'static str)>> {
        let report = report(plan, HelmReleaseProxy::VOCABULARY, "default/hello", None, false)?;
        Some(report.conditions.iter().map(|c| (c.type_, c.status, c.reason.as_str())).collect())
    }

    #[test]
    fn conditions_follow_the_plan() {
        let unreachable = Failure::new(Category::Unreachable, "no route");
        let until = Timestamp::from_second(9).unwrap();
        let again =
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
                (Status::False, "ClusterUnreachable"),
                (Status::False, "ClusterUnreachable"),
                (Status::Unknown, "ClusterUnreachable"),
            ),
            (
                again(Step::Apply, &unreachable),
                (Status::False, "HelmInstallOrUpgradeFailed"),
                (Status::True, "Available"),
                (Status::False, "HelmInstallOrUpgradeFailed"),
            ),
            (
                again(Step::Read, &unreachable),
                (Status::False, "HelmReleaseGetFailed"),
                (Status::True, "Available"),
                (Status::False, "HelmReleaseGetFailed"),
            ),
            (
                again(Step::Remove, &unreachable),
                (Status::False, "HelmReleaseDeletionFailed"),
                (Status::True, "Available"),
                (Status::False, "HelmReleaseDeletionFailed"),
            ),
            (
                again(Step::Resolve, &Failure::new(Category::GetCaCertificateFailed, "no key ca.crt")),
                (Status::False, "GetCACertificateFailed"),
                (Status::False, "GetCACertificateFailed"),
                (Status::Unknown, "GetCACertificateFailed"),
            ),
            (
                again(Step::Resolve, &Failure::new(Category::GetCredentialsFailed, "no Secret")),
                (Status::False, "GetCredentialsFailed"),
                (Status::False, "GetCredentialsFailed"),
                (Status::Unknown, "GetCredentialsFailed"),
            ),
            (
                again(Step::Resolve, &Failure::new(Category::VerificationFailed, "it is not signed")),
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
            assert_eq!(said(&plan), Some(expected), "{plan:?}");
        }
    }

    #[test]
    fn paused_objects_keep_their_last_word() {
        assert_eq!(said(&Plan::Wait(Wait::Paused)), None);
    }

    #[test]
    fn a_restart_takes_no_word_back() {
        let loading = Plan::Wait(Wait::InventoryLoading);
        let said = |spoken| report(&loading, HelmReleaseProxy::VOCABULARY, "default/hello", None, spoken);
        assert!(said(false).is_some());
        assert_eq!(said(true), None);
    }
}
