//! What the user should do next about a release.

use chandler_api::reasons::ReleaseReason;
use chandler_core::failure::Category;

use super::{model::Release, state::State};

/// Returns what the user should do about a release. `None` means nothing.
pub fn next_step(release: &Release) -> Option<String> {
    let state = release.state();
    let reason = release.reason();
    let step = match state {
        State::Ready => return None,
        State::Unreachable => unreachable(reason),
        State::Failed if reason == Some(ReleaseReason::ReleaseCollision) => {
            "change the release name or namespace of one of the two placements, or delete one of them"
        }
        State::Failed if reason == Some(ReleaseReason::InvalidSpec) => after_failure(Category::InvalidSpec),
        State::Failed => release
            .status
            .last_failure
            .as_ref()
            .map_or("read the message; a change of the spec is applied immediately", |failure| {
                after_failure(Category::parse(&failure.category))
            }),
        State::Waiting => waiting(reason),
        State::Removing => removing(reason),
        State::Updating => "wait until the running or queued operation has finished",
        State::Missing => {
            "check the placement's conditions: they contain the reason why this cluster has no release object"
        }
    };
    Some(step.to_owned())
}

fn unreachable(reason: Option<ReleaseReason>) -> &'static str {
    match reason {
        Some(ReleaseReason::GetKubeconfigFailed) => {
            "check the Secret <cluster>-kubeconfig in the Cluster's namespace: it must hold a kubeconfig with inline \
             certificates or a token"
        }
        Some(ReleaseReason::ClusterUnauthorized) => {
            "renew the credentials in the Secret <cluster>-kubeconfig: the workload cluster rejects them"
        }
        Some(ReleaseReason::ClusterForbidden) => {
            "grant the user of the Secret <cluster>-kubeconfig cluster-admin permissions on the workload cluster"
        }
        _ => {
            "check that the workload cluster's API server is running and reachable from the manager's network"
        }
    }
}

fn waiting(reason: Option<ReleaseReason>) -> &'static str {
    match reason {
        Some(ReleaseReason::GetClusterFailed) => {
            "create the Cluster again, or delete the placement or this release object"
        }
        Some(ReleaseReason::NotAvailable) => {
            "wait until the Cluster's control plane is initialized; see `kubectl describe cluster`"
        }
        Some(ReleaseReason::Connecting) => "wait until the manager has connected to the cluster",
        _ => "wait; if nothing happens, check with `chandler doctor` that a manager is running",
    }
}

fn removing(reason: Option<ReleaseReason>) -> &'static str {
    match reason {
        Some(ReleaseReason::ClusterDeleting) => {
            "wait until the Cluster has been deleted; the release is removed with it"
        }
        _ => "wait until the release has been removed from the workload cluster",
    }
}

/// Returns how to fix a failure of this category.
fn after_failure(category: Category) -> &'static str {
    match category {
        Category::InvalidPackage => "choose another version: this package is invalid",
        Category::InvalidValues => "correct the values: the chart rejects them",
        Category::InvalidSpec => "correct the spec: the message names the field",
        Category::Conflict => {
            "decide who owns the object or field that the message names: delete the existing object, rename yours, or \
             set takeOwnership (objects) or force (fields) in the options"
        }
        Category::Unreachable => "check that the workload cluster's API server is running and reachable",
        Category::Unauthorized => "renew the credentials that were rejected",
        Category::Forbidden => "grant the permission that the message names",
        Category::Timeout | Category::NotReady => {
            "check the objects below on the workload cluster: at least one is not ready; or increase the timeout"
        }
        Category::HookFailed => "check the hook's Job and Pod on the workload cluster",
        Category::Cancelled => "wait: the operation was canceled and is retried",
        Category::Rejected => {
            "correct the field that the message names: the workload cluster's API server rejected it"
        }
        Category::SourceUnavailable => "check that the repository is reachable from the manager's network",
        Category::PackageNotFound => "correct the chart name or version: the repository does not have it",
        Category::GetCredentialsFailed => "create or correct the Secret with the repository's credentials",
        Category::GetCaCertificateFailed => {
            "create or correct the Secret with the repository's certificate authority"
        }
        Category::VerificationFailed => {
            "sign the chart as the message requires, or choose a signed version; the installed version is left unchanged"
        }
        Category::ToolUnavailable => "check the manager's log: its package tool is not running",
        Category::Internal => {
            "check the manager's log; if it does not help, report the problem with a support bundle"
        }
    }
}
