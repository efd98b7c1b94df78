//! A no-op reconcile calls no tool, and sends no request to a workload cluster except its watches.

use chandler_e2e::{
    wait::{eventually, until},
    world::World,
};
use chandler_sandbox::requests::AuditEntry;
use serde_json::json;

/// Returns verb and resource of the requests of Chandler and its driver in the audit log, except those that ask a quiet cluster
/// whether it still answers.
fn chandler_requests(entries: Vec<AuditEntry>) -> Vec<(String, String)> {
    let ours = entries.into_iter().filter(|entry| entry.is_from_chandler() && entry.uri != "/version");
    ours.map(|entry| (entry.verb, entry.resource)).collect()
}

#[tokio::test]
async fn a_restart_or_a_repeated_reconcile_sends_no_requests_except_the_watch() {
    let world = World::new("noop").await;
    let alpha = world.create_cluster("alpha").await;
    // From the beginning: the end of a watch is only recognized if its beginning was read.
    let mut audit = alpha.audit_log();
    let manager = world.start_manager();
    world
        .apply_placement("hello", "hello", json!({"valuesTemplate": "cluster: {{ .Cluster.metadata.name }}"}))
        .await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_condition("hello", "alpha", "Healthy", ("True", "Healthy")).await;
    manager.wait_idle().await;
    manager.stop().await;
    let downloads = world.repository.requests();

    audit.read().unwrap();
    let mut management = world.sandbox.management().audit_log();
    let manager = world.start_manager();
    manager.wait_idle().await;
    // The records of Helm, and the objects of the release.
    let kinds = ["configmaps", "deployments", "secrets", "serviceaccounts", "services"];
    let mut requests = Vec::new();
    until("every kind is watched", async || {
        requests.extend(chandler_requests(audit.read().unwrap()));
        requests.iter().filter(|(verb, _)| verb == "watch").count() >= kinds.len()
    })
    .await;
    manager.wait_idle().await;
    requests.extend(chandler_requests(audit.read().unwrap()));
    requests.sort();
    let watches: Vec<_> = ["list", "watch"]
        .iter()
        .flat_map(|verb| kinds.map(|kind| ((*verb).to_owned(), kind.to_owned())))
        .collect();
    assert_eq!(requests, watches, "a restart only lists and watches, each kind once");
    let written: Vec<_> = management
        .read()
        .unwrap()
        .into_iter()
        .filter(|entry| entry.namespace == world.namespace && entry.user_agent.starts_with("chandler/"))
        .filter(|entry| !["get", "list", "watch"].contains(&entry.verb.as_str()))
        .map(|entry| (entry.verb, entry.resource, entry.name))
        .collect();
    assert_eq!(written, [], "a restart writes nothing to the management cluster");
    assert_no_tool_call(&manager.metrics().await);
    for probe in ["/healthz", "/readyz"] {
        assert!(manager.get(probe).await.starts_with("HTTP/1.1 200"), "{probe}");
    }
    assert_eq!(world.repository.requests(), downloads, "a restart downloads nothing");

    let reconciles = |metrics: &std::collections::BTreeMap<String, f64>| metrics["chandler_reconciles_total{kind=\"HelmReleaseProxy\"}"];
    let before = reconciles(&manager.metrics().await);
    let touch = kube::api::Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    let release = world.release("hello", "alpha").await.unwrap();
    let name = release.metadata.name.unwrap();
    world.releases().patch(&name, &kube::api::PatchParams::default(), &touch).await.unwrap();
    eventually("the release is reconciled again", || async {
        (reconciles(&manager.metrics().await) > before).then_some(())
    })
    .await;
    manager.wait_idle().await;
    let metrics = manager.metrics().await;
    assert_eq!(chandler_requests(audit.read().unwrap()), [], "a repeated reconcile sends no request");
    assert_no_tool_call(&metrics);
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    manager.stop().await;
}

fn assert_no_tool_call(metrics: &std::collections::BTreeMap<String, f64>) {
    let calls: Vec<_> = metrics.iter().filter(|(name, _)| name.starts_with("chandler_tool_calls")).collect();
    assert_eq!(calls, [] as [(&String, &f64); 0]);
    assert!(metrics["chandler_tool_starts_total"] == 0.0, "the tool was not started");
}
