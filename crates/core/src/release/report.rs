//! The conditions of a release object, derived from its plan.

mod compare_and_test;
mod health;
mod policy;

use chandler_api::{
    extensions::TestFailure,
    reasons::{ReleaseReason, ReleaseVocabulary},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

pub use self::health::keep_health_message;
pub(crate) use self::health::unhealthy_object;
use self::{
    compare_and_test::{drift_condition, test_condition},
    health::health_condition,
    policy::policy_condition,
};
use super::{ApplyKind, OperationKind, Plan, RemoveFinalizer, Step, TestReport, Wait};
use crate::{
    conditions::{NewCondition, Status, ready_summary},
    drift::DriftReport,
    failure::{Category, Failure},
    health::ReleaseHealth,
    policy::PolicyState,
};

/// The progress of an operation, for users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub step: String,
}

/// What was found about a release that is deployed. `None` means that it is not observed, compared or tested.
#[derive(Clone, Copy, Debug, Default)]
pub struct Findings<'a> {
    pub health: Option<&'a ReleaseHealth>,
    pub drift: Option<&'a DriftReport>,
    pub test: Option<&'a TestReport>,
}

/// The conditions of a release object, `Ready` first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub conditions: Vec<NewCondition>,
}

/// How a user resolves a collision.
pub const ANOTHER_NAME: &str = "give one of them another releaseName or namespace";
const CLUSTER_AVAILABLE: &str = "ClusterAvailable";

/// Returns the conditions to write, or `None` to keep the `old` ones.
///
/// The conditions of paused objects are kept. So are those of an object that has some while the inventory of its cluster is
/// loading, for example after a restart, or while it is not known whether AddonTenancies allow it, and while a comparison is
/// being canceled.
pub fn report(
    plan: &Plan,
    vocabulary: ReleaseVocabulary,
    release: &str,
    progress: Option<&Progress>,
    old: &[Condition],
    findings: Findings<'_>,
    policy: &PolicyState,
) -> Option<Report> {
    if *plan == Plan::Cancel(OperationKind::Compare) {
        // The spec may have changed: only the next plan knows whether the release is up to date.
        return None;
    }
    let plan = if is_in_background(plan, policy) { &Plan::NoOp } else { plan };
    let is_unknown = matches!(plan, Plan::Wait(Wait::InventoryLoading | Wait::RulesUnknown { .. }));
    if !old.is_empty() && is_unknown {
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
    let health = findings.health.and_then(|health| health_condition(plan, vocabulary, old, health));
    // Nothing is concluded from unknown health.
    let unhealthy = health.clone().filter(|health| health.status == Status::False);
    let parts: Vec<_> = [cluster, release].into_iter().chain(unhealthy).collect();
    let ready = ready_summary(&parts, ReleaseReason::Ready.in_vocabulary(vocabulary));
    let own = [ready].into_iter().chain(parts.into_iter().take(2));
    let drift = findings.drift.and_then(|drift| drift_condition(vocabulary, old, drift));
    let test = findings.test.map(|test| test_condition(vocabulary, test));
    let policy = policy_condition(vocabulary, policy);
    Some(Report { conditions: own.chain(health).chain(drift).chain(test).chain(policy).collect() })
}

/// Returns why a release waits, for users, as the conditions of its release object say it.
pub fn wait_text(wait: &Wait, release: &str) -> String {
    let (plan, vocabulary) = (Plan::Wait(wait.clone()), ReleaseVocabulary::AddonRelease);
    let cluster = cluster_condition(&plan, vocabulary);
    if cluster.status != Status::True {
        return cluster.message;
    }
    match release_condition(&plan, vocabulary, release, None) {
        Some(condition) => condition.message,
        None if *wait == Wait::PlacementChanging => "its placement is changing".to_owned(),
        None => "it, its placement or its Cluster is paused".to_owned(),
    }
}

/// Returns whether Ready does not depend on the end of the operation.
fn is_in_background(plan: &Plan, policy: &PolicyState) -> bool {
    match plan {
        Plan::Operate(OperationKind::Compare) | Plan::Wait(Wait::Operating(OperationKind::Compare)) => true,
        Plan::Operate(OperationKind::Test) | Plan::Wait(Wait::Operating(OperationKind::Test)) => {
            policy.effective().test.is_none_or(|test| test.on_failure == TestFailure::Ignore)
        }
        _ => false,
    }
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
            (Status::False, failed_reason(*step, failure), retry_message(failure, *until))
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
        Plan::Wait(wait) => match policy::waiting(wait, release) {
            Some((reason, message)) => (Status::False, reason, message),
            None => return None,
        },
        Plan::Withdraw => return None,
    };
    Some(NewCondition {
        type_: vocabulary.release_ready(),
        status,
        reason: reason.in_vocabulary(vocabulary),
        message,
    })
}

/// Returns the reason while a step that has failed waits for its retry.
fn failed_reason(step: Step, failure: &Failure) -> ReleaseReason {
    match step {
        Step::Read => ReleaseReason::ReadFailed,
        Step::Remove => ReleaseReason::RemovalFailed,
        _ if failure.category == Category::NotAllowed => ReleaseReason::NotAllowed,
        // A missing signature and a quota have their own reasons, because they are not failures of Helm.
        _ if failure.category == Category::VerificationFailed => ReleaseReason::VerificationFailed,
        _ if failure.category == Category::QuotaExceeded => ReleaseReason::QuotaExceeded,
        Step::Resolve | Step::Apply | Step::Rollback => ReleaseReason::ApplyFailed,
    }
}

/// Returns the reason while an operation is running.
fn reason_of(operation: OperationKind) -> ReleaseReason {
    match operation {
        OperationKind::Apply(_) | OperationKind::Rollback | OperationKind::Compare | OperationKind::Test => {
            ReleaseReason::Pending
        }
        OperationKind::Remove | OperationKind::UninstallFailed => ReleaseReason::Removing,
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
        OperationKind::Rollback => "rolling back",
        OperationKind::UninstallFailed => "uninstalling",
        OperationKind::Compare => "comparing the objects of",
        OperationKind::Test => "testing",
    };
    match step {
        Some(step) => format!("{verb} release {release}: {step}"),
        None => format!("{verb} release {release}"),
    }
}

#[cfg(test)]
mod tests;
