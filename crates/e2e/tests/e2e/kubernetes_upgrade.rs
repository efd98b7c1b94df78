//! Releases during a Kubernetes upgrade of their cluster, and while its version is unknown.

use std::time::Duration;

use chandler_api::addons::HelmChartProxy;
use chandler_e2e::{
    manager::Manager,
    self_hosted::{NAMESPACE, SelfHosted},
    wait::{eventually, eventually_within, until},
    world::{World, chart, config_value, hello},
};
use chandler_sandbox::{assets::KubernetesVersion, provider::cluster_resource, testing};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

async fn set_version(world: &World, cluster: &str, version: &str) {
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), &world.namespace, &cluster_resource());
    let patch = Patch::Merge(json!({"spec": {"topology": {"version": version}}}));
    clusters.patch(cluster, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn only_charts_that_read_the_kubernetes_version_are_upgraded() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("minor").await;
    world.repository.publish(&chart("capable")).unwrap();
    let alpha = world.create_topology_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.apply_placement("capable", "capable", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("capable", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "capable", "kubernetes").await.as_deref(), Some("v1.34.4"));

    set_version(&world, "alpha", "v1.35.4").await;
    let workload = alpha.client().await.unwrap();
    eventually_within(Duration::from_mins(4), "the API server is upgraded", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;
    // It is upgraded once, and only after the API server: otherwise the second revision would contain the old version.
    world.wait_ready("capable", "alpha", 2).await;
    assert_eq!(config_value(&alpha, "capable", "kubernetes").await.as_deref(), Some("v1.35.4"));

    world.sandbox.wait_cluster(&world.namespace, "alpha").await.unwrap();
    manager.wait_idle().await;
    world.wait_ready("capable", "alpha", 2).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
}

/// The version is unknown before the control plane is created or has started, and after `clusterctl move`, which moves no
/// status.
#[tokio::test]
async fn while_the_kubernetes_version_is_unknown_charts_that_read_it_wait_and_are_not_upgraded_twice() {
    let test = SelfHosted::new("unknown-version").await;
    test.repository.publish(&chart("capable")).unwrap();
    test.serve_control_planes().await;
    test.create_cluster_with_control_plane("alpha").await;
    let manager = Manager::from_process(test.management.start_manager());
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    test.apply_placement("capable", "alpha", "capable", &json!({})).await;
    test.wait_ready("hello", 1).await;
    test.wait_condition("capable", "Ready", "False", "SandboxControlPlane default/alpha does not exist")
        .await;
    test.create_control_plane("alpha", "v1.34.4").await;
    test.wait_condition("capable", "Ready", "False", "does not report yet").await;
    assert!(test.revisions("capable").await.is_empty());
    test.report_version("alpha", Some("v1.34.4")).await;
    test.wait_ready("capable", 1).await;

    // What is known stays known, until the manager is restarted.
    let first = [(1, "deployed".to_owned())];
    test.report_version("alpha", None).await;
    manager.wait_idle().await;
    test.wait_ready("capable", 1).await;
    manager.stop().await;
    let manager = Manager::from_process(test.management.start_manager());
    test.wait_condition("capable", "Ready", "False", "does not report yet").await;
    assert_eq!(test.revisions("capable").await, first);

    // A change that is made meanwhile is applied once.
    test.apply_placement("capable", "alpha", "capable", &json!({"valuesTemplate": "changed: true"})).await;
    eventually("the changed release is reconciled", || async {
        let release = test.release("capable").await?;
        let reconciled = release.status?.observed_generation == release.metadata.generation;
        (reconciled && release.spec.values.contains("changed")).then_some(())
    })
    .await;
    assert_eq!(test.revisions("capable").await, first);
    test.report_version("alpha", Some("v1.34.4")).await;
    test.wait_ready("capable", 2).await;
    let both = [(1, "superseded".to_owned()), (2, "deployed".to_owned())];
    assert_eq!(test.revisions("capable").await, both);
    assert_eq!(test.revisions("hello").await, first);
    manager.stop().await;
}

#[tokio::test]
async fn a_chart_has_the_version_that_its_placement_names_for_the_kubernetes_version() {
    let test = SelfHosted::new("named-versions").await;
    test.repository.publish_version(&hello(), "1.1.0").unwrap();
    test.serve_control_planes().await;
    test.create_control_plane("alpha", "v1.34.4").await;
    test.report_version("alpha", Some("v1.34.4")).await;
    test.create_cluster_with_control_plane("alpha").await;
    test.apply_placement("hello", "alpha", "hello", &json!({"version": ""})).await;
    let placements: Api<HelmChartProxy> = Api::namespaced(test.management.client.clone(), NAMESPACE);
    let annotate = async |versions: &str| {
        let annotations = json!({"chandler.dev/kubernetes-versions": versions});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        placements.patch("hello", &PatchParams::default(), &patch).await.unwrap();
    };
    annotate(r#"{"1.34": "1.0.0", "1.35": "1.1.0"}"#).await;
    let manager = Manager::from_process(test.management.start_manager());
    let version = async || test.release("hello").await.unwrap().spec.version;
    test.wait_ready("hello", 1).await;
    assert_eq!(version().await, "1.0.0");
    test.report_version("alpha", Some("v1.35.4")).await;
    test.wait_ready("hello", 2).await;
    assert_eq!(version().await, "1.1.0");

    // A Kubernetes version that is not named, and an annotation that cannot be read, are reported and change nothing.
    let wait_problem = async |text: &str| {
        until(&format!("the placement reports: {text}"), async || {
            let status = placements.get("hello").await.unwrap().status.unwrap_or_default();
            status.conditions.iter().any(|one| one.status == "False" && one.message.contains(text))
        })
        .await;
    };
    test.report_version("alpha", Some("v1.36.0")).await;
    wait_problem("names no version for Kubernetes 1.36").await;
    annotate("1.36: 2.0.0").await;
    wait_problem("is not a JSON object").await;
    test.wait_ready("hello", 2).await;
    assert_eq!(version().await, "1.1.0");
    manager.stop().await;
}
