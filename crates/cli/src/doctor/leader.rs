//! Whether a manager acts.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::Finding;
use crate::{manager::LEASE, output::age};

const CHECK: &str = "leader";
const NEXT: &str = "start a manager, or look at its log: `chandler manager --help`";

pub async fn check(
    client: &Client,
    manager_namespace: &str,
    namespace: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), manager_namespace);
    let leases = leases.list(&ListParams::default()).await;
    let leases = leases.with_context(|| format!("listing Leases of namespace {manager_namespace}"))?;
    Ok(judge(&leases.items, namespace, now))
}

/// Managers that look after one namespace have a Lease of their own, whose name ends in the namespace's.
fn judge(leases: &[Lease], namespace: Option<&str>, now: Timestamp) -> Vec<Finding> {
    let concerns = |lease: &&Lease| match (lease.name_any().strip_prefix(LEASE), namespace) {
        (None, _) => false,
        (Some(_), None) | (Some(""), Some(_)) => true,
        (Some(rest), Some(namespace)) => rest.trim_start_matches('-').starts_with(namespace),
    };
    let (held, idle): (Vec<&Lease>, Vec<&Lease>) =
        leases.iter().filter(concerns).partition(|lease| is_held(lease, now));
    if held.is_empty() {
        let seen: Vec<_> = idle.iter().map(|lease| told(lease, now)).collect();
        let seen = if seen.is_empty() { "there is no Lease of one".to_owned() } else { seen.join("; ") };
        return vec![Finding::problem(CHECK, format!("no manager acts: {seen}"), NEXT)];
    }
    let acting = held.iter().map(|lease| Finding::ok(CHECK, told(lease, now)));
    let idle = idle.iter().map(|lease| {
        let next = "start that manager again, or delete the Lease if it is not to come back";
        Finding::warning(CHECK, told(lease, now), next)
    });
    acting.chain(idle).collect()
}

/// Renewed lately. Clocks differ: twice the lease is still late.
fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    let age = spec.renew_time.as_ref().map(|renewed| now.duration_since(renewed.0).as_secs());
    !holder.is_empty() && age.is_some_and(|age| age < 2 * duration)
}

fn told(lease: &Lease, now: Timestamp) -> String {
    let name = lease.name_any();
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed =
        spec.renew_time.map_or_else(|| "never".to_owned(), |time| format!("{} ago", age(time.0, now)));
    match spec.holder_identity.filter(|holder| !holder.is_empty()) {
        Some(holder) => format!("Lease {name} is held by {holder}, renewed {renewed}"),
        None => format!("Lease {name} is held by nobody"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Verdict;

    fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .unwrap()
    }

    #[test]
    fn someone_has_to_act() {
        let (early, late) = ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:50.000000Z");
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let verdicts = |leases: &[Lease], namespace: Option<&str>| {
            judge(leases, namespace, now).iter().map(|found| found.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&[], None), [Verdict::Problem]);
        assert_eq!(verdicts(&[lease("other", "x", late)], None), [Verdict::Problem]);
        assert_eq!(verdicts(&[lease("chandler-leader", "x", late)], None), [Verdict::Ok]);
        assert_eq!(verdicts(&[lease("chandler-leader", "x", late)], Some("fleet")), [Verdict::Ok]);
        assert_eq!(verdicts(&[lease("chandler-leader", "x", early)], None), [Verdict::Problem]);
        assert_eq!(verdicts(&[lease("chandler-leader", "", late)], None), [Verdict::Problem]);
        let two = [lease("chandler-leader-fleet", "x", late), lease("chandler-leader-other", "y", early)];
        assert_eq!(verdicts(&two, None), [Verdict::Ok, Verdict::Warning]);
        assert_eq!(verdicts(&two, Some("fleet")), [Verdict::Ok]);
        assert_eq!(verdicts(&two, Some("other")), [Verdict::Problem]);
    }
}
