//! What a person should do next, in words.

use chandler_api::reasons::ReleaseReason;
use chandler_core::failure::Category;

use super::{model::Release, state::State};

/// What to do about a release. None: nothing.
pub fn advice(release: &Release) -> Option<String> {
    let state = release.state();
    let reason = release.reason();
    let words = match state {
        State::Ready => return None,
        State::Unreachable => unreachable(reason),
        State::Failed if reason == Some(ReleaseReason::ReleaseCollision) => {
            "give one of the two another release name or namespace, or delete one of them"
        }
        State::Failed if reason == Some(ReleaseReason::InvalidSpec) => after_failure(Category::InvalidSpec),
        State::Failed => release
            .status
            .last_failure
            .as_ref()
            .map_or("read the message; a change of the spec is tried at once", |failure| {
                after_failure(Category::parse(&failure.category))
            }),
        State::Waiting => waiting(reason),
        State::Removing => removing(reason),
        State::Updating => "wait: an operation is running or about to",
        State::Missing => {
            "read the placement's conditions: they say why there is no release for this cluster"
        }
    };
    Some(words.to_owned())
}

fn unreachable(reason: Option<ReleaseReason>) -> &'static str {
    match reason {
        Some(ReleaseReason::GetKubeconfigFailed) => {
            "check the Secret <cluster>-kubeconfig in the Cluster's namespace: it must hold a kubeconfig with inline \
             certificates or a token"
        }
        Some(ReleaseReason::ClusterUnauthorized) => {
            "renew the credentials in the Secret <cluster>-kubeconfig: the workload cluster refuses them"
        }
        Some(ReleaseReason::ClusterForbidden) => {
            "give the user of the Secret <cluster>-kubeconfig the rights of an administrator on the workload cluster"
        }
        _ => {
            "see whether the workload cluster's API server runs and can be reached from the manager's network"
        }
    }
}

fn waiting(reason: Option<ReleaseReason>) -> &'static str {
    match reason {
        Some(ReleaseReason::GetClusterFailed) => {
            "create the Cluster again, or delete the placement or this release object"
        }
        Some(ReleaseReason::NotAvailable) => {
            "wait until the Cluster's control plane is initialized; `kubectl describe cluster` tells more"
        }
        Some(ReleaseReason::Connecting) => "wait: the cluster is being read",
        _ => "wait; if nothing happens, see whether a manager runs: `chandler doctor`",
    }
}

fn removing(reason: Option<ReleaseReason>) -> &'static str {
    match reason {
        Some(ReleaseReason::ClusterDeleting) => "wait: the release goes with its Cluster",
        _ => "wait until the release has been removed from the workload cluster",
    }
}

/// What mends each kind of failure.
fn after_failure(category: Category) -> &'static str {
    match category {
        Category::InvalidPackage => "choose another version: this package cannot be used",
        Category::InvalidValues => "correct the values: the chart refuses them",
        Category::InvalidSpec => "correct the spec: the message names the field",
        Category::Conflict => {
            "decide who owns the object or field that the message names: remove it there, rename it here, or set \
             takeOwnership (objects) or force (fields) in the options"
        }
        Category::Unreachable => "see whether the workload cluster's API server runs and can be reached",
        Category::Unauthorized => "renew the credentials that were refused",
        Category::Forbidden => "grant the right that the message names",
        Category::Timeout | Category::NotReady => {
            "look at the objects below on the workload cluster: one of them does not become ready; or raise the timeout"
        }
        Category::HookFailed => "look at the hook's Job and Pod on the workload cluster",
        Category::Cancelled => "wait: it was stopped, and is tried again",
        Category::Rejected => {
            "correct what the workload cluster's API server refused: the message names the field"
        }
        Category::SourceUnavailable => "see whether the repository can be reached from the manager's network",
        Category::PackageNotFound => "correct chart name or version: the repository does not have it",
        Category::GetCredentialsFailed => "create or correct the Secret with the repository's credentials",
        Category::GetCaCertificateFailed => {
            "create or correct the Secret with the repository's certificate authority"
        }
        Category::VerificationFailed => {
            "sign the chart as the message says, or choose a version that is signed; what runs stays"
        }
        Category::ToolUnavailable => "look at the manager's log: its package tool does not run",
        Category::Internal => "look at the manager's log, and send a support bundle if it makes no sense",
    }
}
