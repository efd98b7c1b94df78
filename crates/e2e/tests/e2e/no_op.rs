//! No-op costs nothing: no tool call, and no request to a workload cluster beyond its watch.

use chandler_e2e::{wait::eventually, world::World};
use chandler_sandbox::requests::AuditEntry;
use serde_json::json;

/// Requests of Chandler and of its driver, as the API server logged them.
fn ours(entries: Vec<AuditEntry>) -> Vec<(String, String)> {
    let ours = entries.into_iter().filter(AuditEntry::is_chandlers);
    ours.map(|entry| (entry.verb, entry.resource)).collect()
}

#[tokio::test]
async fn a_restart_or_a_second_pass_asks_for_nothing_but_its_watch() {
    let world = World::new("noop").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("hello", "hello", json!({"valuesTemplate": "cluster: {{ .Cluster.metadata.name }}"})).await;
    world.ready("hello", "alpha", 1).await;
    manager.settled().await;
    manager.stop().await;
    let downloads = world.repository.requests();

    let mut audit = alpha.audit_log();
    let mut management = world.sandbox.management().audit_log();
    let manager = world.manager();
    manager.settled().await;
    let mut requests = ours(audit.read().unwrap());
    requests.sort();
    let watch = ["list", "watch"].map(|verb| (verb.to_owned(), "secrets".to_owned()));
    assert_eq!(requests, watch, "a restart lists and watches, nothing else");
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

    let passes = |metrics: &std::collections::BTreeMap<String, f64>| metrics["chandler_reconciles_total{kind=\"HelmReleaseProxy\"}"];
    let before = passes(&manager.metrics().await);
    let touch = kube::api::Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    let release = world.release("hello", "alpha").await.unwrap();
    let name = release.metadata.name.unwrap();
    world.releases().patch(&name, &kube::api::PatchParams::default(), &touch).await.unwrap();
    eventually("there is a second pass", || async {
        (passes(&manager.metrics().await) > before).then_some(())
    })
    .await;
    manager.settled().await;
    let metrics = manager.metrics().await;
    assert_eq!(ours(audit.read().unwrap()), [], "a second pass asks for nothing");
    assert_no_tool_call(&metrics);
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    manager.stop().await;
}

fn assert_no_tool_call(metrics: &std::collections::BTreeMap<String, f64>) {
    let calls: Vec<_> = metrics.iter().filter(|(name, _)| name.starts_with("chandler_tool_calls")).collect();
    assert_eq!(calls, [] as [(&String, &f64); 0]);
    assert!(metrics["chandler_tool_starts_total"] == 0.0, "the tool was not even started");
}
