//! Checks whether a manager is the leader.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::Finding;
use crate::{manager::LEASE, output::age};

const CHECK: &str = "leader";
const NEXT_STEP: &str = "start a manager, or check its log";

pub async fn check(
    client: &Client,
    manager_namespace: &str,
    namespace: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), manager_namespace);
    let leases = leases.list(&ListParams::default()).await;
    let leases = leases.with_context(|| format!("listing Leases of namespace {manager_namespace}"))?;
    Ok(evaluate(&leases.items, namespace, now))
}

/// Evaluates the Leases of managers for this namespace. `None` means all namespaces. The name of a Lease contains the
/// manager's `--namespace`.
fn evaluate(leases: &[Lease], namespace: Option<&str>, now: Timestamp) -> Vec<Finding> {
    let is_relevant = |lease: &&Lease| match (lease.name_any().strip_prefix(LEASE), namespace) {
        (None, _) => false,
        (Some(_), None) | (Some(""), Some(_)) => true,
        (Some(rest), Some(namespace)) => rest.trim_start_matches('-').starts_with(namespace),
    };
    let (held, expired): (Vec<&Lease>, Vec<&Lease>) =
        leases.iter().filter(is_relevant).partition(|lease| is_held(lease, now));
    if held.is_empty() {
        let leases: Vec<_> = expired.iter().map(|lease| describe(lease, now)).collect();
        let leases = if leases.is_empty() { "there is no Lease".to_owned() } else { leases.join("; ") };
        return vec![Finding::problem(CHECK, format!("no manager is the leader: {leases}"), NEXT_STEP)];
    }
    let leaders = held.iter().map(|lease| Finding::ok(CHECK, describe(lease, now)));
    let expired = expired.iter().map(|lease| {
        let next_step = "start this manager again, or delete the Lease if the manager is uninstalled";
        Finding::warning(CHECK, describe(lease, now), next_step)
    });
    leaders.chain(expired).collect()
}

/// Returns whether the Lease has a holder that renewed it within twice its duration. The factor allows for clock skew.
fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    let age = spec.renew_time.as_ref().map(|renewed| now.duration_since(renewed.0).as_secs());
    !holder.is_empty() && age.is_some_and(|age| age < 2 * duration)
}

fn describe(lease: &Lease, now: Timestamp) -> String {
    let name = lease.name_any();
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed =
        spec.renew_time.map_or_else(|| "never".to_owned(), |time| format!("{} ago", age(time.0, now)));
    match spec.holder_identity.filter(|holder| !holder.is_empty()) {
        Some(holder) => format!("Lease {name} is held by {holder}, renewed {renewed}"),
        None => format!("Lease {name} has no holder"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .unwrap()
    }

    #[test]
    fn a_leader_is_required() {
        let (early, late) = ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:50.000000Z");
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let severities = |leases: &[Lease], namespace: Option<&str>| {
            evaluate(leases, namespace, now).iter().map(|finding| finding.severity).collect::<Vec<_>>()
        };
        assert_eq!(severities(&[], None), [Severity::Problem]);
        assert_eq!(severities(&[lease("other", "x", late)], None), [Severity::Problem]);
        assert_eq!(severities(&[lease("chandler-leader", "x", late)], None), [Severity::Ok]);
        assert_eq!(severities(&[lease("chandler-leader", "x", late)], Some("fleet")), [Severity::Ok]);
        assert_eq!(severities(&[lease("chandler-leader", "x", early)], None), [Severity::Problem]);
        assert_eq!(severities(&[lease("chandler-leader", "", late)], None), [Severity::Problem]);
        let two = [lease("chandler-leader-fleet", "x", late), lease("chandler-leader-other", "y", early)];
        assert_eq!(severities(&two, None), [Severity::Ok, Severity::Warning]);
        assert_eq!(severities(&two, Some("fleet")), [Severity::Ok]);
        assert_eq!(severities(&two, Some("other")), [Severity::Problem]);
    }
}
