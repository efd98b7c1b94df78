//! What the user should do next about a release.

use chandler_api::reasons::ReleaseReason;
use chandler_core::failure::Category;

use super::{
    model::{ObjectName, Release},
    state::State,
};

/// Returns what the user should do about a release. `None` means nothing.
pub fn next_step(release: &Release) -> Option<String> {
    let state = release.state();
    let reason = release.reason();
    // The reason of a release that is being updated is that of an earlier spec.
    let is_current = matches!(state, State::Failed | State::Waiting | State::Removing);
    let step = reason.filter(|_| is_current).and_then(|reason| policy_step(release, reason));
    if step.is_some() {
        return step;
    }
    let step = match state {
        State::Ready => return None,
        State::Unreachable => unreachable(reason),
        State::Failed if reason == Some(ReleaseReason::ReleaseCollision) => {
            "change the release name or namespace of one of the two placements, or delete one of them"
        }
        State::Failed if reason == Some(ReleaseReason::InvalidSpec) => after_failure(Category::InvalidSpec),
        State::Failed if reason == Some(ReleaseReason::NotAllowed) => after_failure(Category::NotAllowed),
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

/// Returns what to do about a reason that a policy or a user has caused.
fn policy_step(release: &Release, reason: ReleaseReason) -> Option<String> {
    Some(match reason {
        ReleaseReason::Suspended if release.suspended => {
            format!("resume it with `chandler resume {}`", on_cluster(release))
        }
        ReleaseReason::Suspended => {
            let placement = placement_argument(release);
            format!(
                "resume it with `chandler resume {placement}`; if its AddonPolicy suspends it, set `suspend: false` there"
            )
        }
        ReleaseReason::PolicyNotFound => {
            "create the AddonPolicy that the message names, or remove the reference to it from the placement".to_owned()
        }
        ReleaseReason::RetriesExhausted | ReleaseReason::Stalled => {
            let fix = release.status.last_failure.as_ref().map(|failure| {
                format!("{}; then ", after_failure(Category::parse(&failure.category)))
            });
            format!(
                "{}try it again with `chandler retry {}`, or change the spec",
                fix.unwrap_or_default(),
                on_cluster(release)
            )
        }
        ReleaseReason::RolledBack => format!(
            "an earlier revision is running: correct the spec, or try the same inputs again with `chandler retry {}`",
            on_cluster(release)
        ),
        ReleaseReason::Unhealthy => {
            "check the object that the message names on the workload cluster; Chandler reports it and does not change it"
                .to_owned()
        }
        _ => return None,
    })
}

/// Returns the arguments that select a release: its placement and its cluster.
fn on_cluster(release: &Release) -> String {
    match &release.placement {
        Some(_) => format!("{} --cluster {}", placement_argument(release), release.cluster),
        None => release.object.argument(),
    }
}

fn placement_argument(release: &Release) -> String {
    let ObjectName { namespace, .. } = &release.object;
    match &release.placement {
        Some((kind, name)) => {
            ObjectName { kind: kind.clone(), namespace: namespace.clone(), name: name.clone() }.argument()
        }
        None => release.object.argument(),
    }
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
             set takeOwnership in the options (objects) or `conflicts` in an AddonPolicy (fields)"
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
            "correct what the message names: the workload cluster's API server rejected it, or a CRD cannot be replaced safely"
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
        Category::QuotaExceeded => {
            "remove what the namespace does not need, or let the operator increase the quota that the message names"
        }
        Category::NotAllowed => {
            "use what the AddonTenancy allows that the message names, or let the operator extend its field"
        }
        Category::ToolCrashed => {
            "choose another version or other values: the package tool used more memory or CPU time than it may, or crashed"
        }
        Category::ToolUnavailable => "check the manager's log: its package tool is not running",
        Category::Internal => {
            "check the manager's log; if it does not help, report the problem with a support bundle"
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{ready, release};

    #[test]
    fn steps_after_decisions_of_a_policy_or_a_user_name_the_command() {
        let rows = [
            ("Suspended", "resume it with `chandler resume hcp/hello`; if its AddonPolicy suspends it"),
            ("PolicyNotFound", "create the AddonPolicy that the message names"),
            ("RetriesExhausted", "check the hook's Job and Pod on the workload cluster; then try it again"),
            ("RolledBack", "with `chandler retry hcp/hello --cluster alpha`"),
            ("Unhealthy", "check the object that the message names"),
        ];
        for (reason, expected) in rows {
            let mut status = ready("False", reason, "");
            status["lastFailure"] = json!({
                "category": "HookFailed", "message": "", "input": "", "count": 3, "at": "2026-01-01T00:00:00Z",
            });
            let mut release = release("hello", "alpha", &status);
            let step = next_step(&release).unwrap();
            assert!(step.contains(expected), "{reason}: {step}");
            assert_eq!(release.next_retry().is_some(), reason == "Unhealthy", "{reason}");
            release.suspended = true;
            if reason == "Suspended" {
                let step = next_step(&release).unwrap();
                assert_eq!(step, "resume it with `chandler resume hcp/hello --cluster alpha`");
            }
        }
    }
}
