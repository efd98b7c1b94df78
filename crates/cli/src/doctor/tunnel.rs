//! Checks the hub and the tunnels to clusters behind NAT.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use chandler_api::{
    capi::{CLUSTER_GROUP, CLUSTER_VERSION},
    tunnel::ClusterTunnel,
};
use chandler_view::tunnels::{Enabled, TunnelState, TunnelView, enabled_by};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use super::Finding;
use crate::output::age;

const CHECK: &str = "tunnel";
/// Name of the Deployment of the hub.
const HUB: &str = "chandler-hub";
/// Maximum number of tunnels that are listed. The rest are counted.
const MAX_LISTED: usize = 5;
/// Agents of a cluster that is being created need this time to join.
const GRACE_SECONDS: i64 = 900;

/// What the check observes.
struct Observed {
    tunnels: Vec<ClusterTunnel>,
    /// The Clusters whose tunnel is enabled, as namespace and name.
    enabled: Vec<(String, String)>,
    hub: Option<Deployment>,
}

/// Checks the tunnels of a namespace, and the hub in the manager's namespace. `None` means all namespaces. Without tunnels
/// there is no finding.
pub async fn check(
    client: &Client,
    manager_namespace: &str,
    namespace: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let tunnels: Api<ClusterTunnel> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let tunnels = match tunnels.list(&ListParams::default()).await {
        // The check of kinds reports it.
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        listed => listed.context("listing ClusterTunnels")?.items,
    };
    let enabled = enabled_clusters(client, namespace).await?;
    let hubs: Api<Deployment> = Api::namespaced(client.clone(), manager_namespace);
    let hub = hubs.get_opt(HUB).await;
    let hub = hub.with_context(|| format!("reading Deployment {manager_namespace}/{HUB}"))?;
    Ok(evaluate(&Observed { tunnels, enabled, hub }, manager_namespace, now))
}

async fn enabled_clusters(client: &Client, namespace: Option<&str>) -> Result<Vec<(String, String)>> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(CLUSTER_GROUP, CLUSTER_VERSION, "Cluster"));
    let clusters: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let clusters = match clusters.list(&ListParams::default()).await {
        // Cluster API is not installed.
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        listed => listed.context("listing Clusters")?.items,
    };
    let enabled = clusters.iter().filter(|cluster| {
        cluster.metadata.deletion_timestamp.is_none() && enabled_by(cluster) != Enabled::No
    });
    Ok(enabled.map(|cluster| (cluster.namespace().unwrap_or_default(), cluster.name_any())).collect())
}

fn evaluate(observed: &Observed, manager_namespace: &str, now: Timestamp) -> Vec<Finding> {
    let Observed { tunnels, enabled, hub } = observed;
    if tunnels.is_empty() && enabled.is_empty() {
        return Vec::new();
    }
    let mut findings = vec![hub_finding(hub.as_ref(), manager_namespace)];
    findings.extend(missing(tunnels, enabled));
    let views: Vec<_> = tunnels.iter().map(|tunnel| (TunnelView::new(tunnel), tunnel)).collect();
    let not_ready = views.iter().filter(|(view, tunnel)| {
        let created = tunnel.metadata.creation_timestamp.as_ref();
        let is_new = created.is_some_and(|time| now.duration_since(time.0).as_secs() < GRACE_SECONDS);
        view.state != TunnelState::Ready && !(is_new && view.state != TunnelState::Disconnected)
    });
    let not_ready: Vec<_> = not_ready.map(|(view, _)| view).collect();
    for view in not_ready.iter().take(MAX_LISTED) {
        findings.push(tunnel_finding(view, now));
    }
    if let Some(more) = not_ready.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        let next_step = "`chandler tunnel get --all-namespaces` lists them";
        findings.push(Finding::problem(CHECK, format!("{more} more tunnels are not ready"), next_step));
    }
    let ready = views.iter().filter(|(view, _)| view.state == TunnelState::Ready).count();
    if ready > 0 {
        findings.push(Finding::ok(CHECK, format!("{ready} of {} tunnels are ready", views.len())));
    }
    findings
}

fn hub_finding(hub: Option<&Deployment>, namespace: &str) -> Finding {
    let Some(hub) = hub else {
        return Finding::problem(
            CHECK,
            format!("there are tunnels, and no Deployment {namespace}/{HUB}"),
            "install the chart with tunnel.enabled and tunnel.hubAddresses; if the hub is in another namespace, set \
             --manager-namespace",
        );
    };
    let wanted = hub.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = hub.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    let message = format!("{available} of {wanted} hubs are available");
    let next_step = format!(
        "check the Pods with `kubectl get pods --namespace {namespace} --selector app.kubernetes.io/name={HUB}`; without \
         Secret {namespace}/chandler-tunnel-keys, which the manager creates, they do not start"
    );
    match available {
        0 => Finding::problem(CHECK, message, next_step),
        _ if available < wanted => Finding::warning(CHECK, message, next_step),
        _ => Finding::ok(CHECK, message),
    }
}

/// Returns a problem if Clusters have no ClusterTunnel although it is enabled.
fn missing(tunnels: &[ClusterTunnel], enabled: &[(String, String)]) -> Option<Finding> {
    let existing: BTreeSet<(String, String)> = tunnels
        .iter()
        .map(|tunnel| (tunnel.namespace().unwrap_or_default(), tunnel.spec.cluster_name.clone()))
        .collect();
    let names: Vec<String> = enabled
        .iter()
        .filter(|key| !existing.contains(*key))
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    if names.is_empty() {
        return None;
    }
    let listed = names.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join(", ");
    Some(Finding::problem(
        CHECK,
        format!("the tunnels of {} Clusters are enabled and do not exist: {listed}", names.len()),
        "start the manager with --tunnel-hub-address (chart: tunnel.enabled and tunnel.hubAddresses)",
    ))
}

fn tunnel_finding(view: &TunnelView, now: Timestamp) -> Finding {
    let seen = match &view.last_seen {
        Some(time) => format!(", last seen {} ago", age(time.0, now)),
        None => String::new(),
    };
    let message = format!(
        "the tunnel of Cluster {}/{} is {}{seen}: {}",
        view.namespace, view.cluster, view.state, view.message
    );
    Finding::problem(CHECK, message, view.next_step().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{tunnel, tunnel_with};
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    fn hub(available: i32) -> Deployment {
        let object = json!({
            "metadata": {"name": HUB},
            "spec": {"replicas": 2, "selector": {}, "template": {}},
            "status": {"availableReplicas": available},
        });
        serde_json::from_value(object).unwrap()
    }

    fn severities(tunnels: Vec<ClusterTunnel>, enabled: &[&str], hub: Option<Deployment>) -> Vec<Severity> {
        let enabled = enabled.iter().map(|name| ("fleet".to_owned(), (*name).to_owned())).collect();
        let observed = Observed { tunnels, enabled, hub };
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        evaluate(&observed, "chandler-system", now).iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn nothing_is_checked_without_tunnels() {
        assert!(severities(vec![], &[], None).is_empty());
    }

    #[test]
    fn hub_and_tunnels_must_be_available() {
        let disconnected = || tunnel_with("green", &[("Joined", "True"), ("Connected", "False")]);
        let mut new = tunnel_with("new", &[("Joined", "False"), ("Connected", "False")]);
        new.metadata.creation_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:59:00Z")).unwrap());
        let rows = vec![
            (vec![tunnel("blue")], vec!["blue"], Some(hub(2)), vec![Severity::Ok, Severity::Ok]),
            (vec![tunnel("blue")], vec!["blue"], Some(hub(1)), vec![Severity::Warning, Severity::Ok]),
            (vec![tunnel("blue")], vec!["blue"], Some(hub(0)), vec![Severity::Problem, Severity::Ok]),
            (vec![tunnel("blue")], vec!["blue"], None, vec![Severity::Problem, Severity::Ok]),
            (vec![], vec!["blue"], Some(hub(2)), vec![Severity::Ok, Severity::Problem]),
            (vec![disconnected()], vec!["green"], Some(hub(2)), vec![Severity::Ok, Severity::Problem]),
            (vec![new], vec!["new"], Some(hub(2)), vec![Severity::Ok]),
        ];
        for (number, (tunnels, enabled, hub, expected)) in rows.into_iter().enumerate() {
            assert_eq!(severities(tunnels, &enabled, hub), expected, "row {number}");
        }
    }

    #[test]
    fn the_rest_is_counted() {
        let tunnels = (0..8)
            .map(|number| tunnel_with(&format!("c{number}"), &[("Joined", "True"), ("Connected", "False")]))
            .collect();
        let found = severities(tunnels, &[], Some(hub(2)));
        assert_eq!(found.len(), 1 + MAX_LISTED + 1);
    }
}
