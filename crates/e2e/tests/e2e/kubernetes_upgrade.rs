//! Releases during a Kubernetes upgrade of their cluster.

use chandler_e2e::world::{World, chart, config_value};
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
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.apply_placement("capable", "capable", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("capable", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "capable", "kubernetes").await.as_deref(), Some("v1.34.4"));

    set_version(&world, "alpha", "v1.35.4").await;
    // It is upgraded once, and only after the API server: otherwise the second revision would contain the old version.
    world.wait_ready("capable", "alpha", 2).await;
    assert_eq!(config_value(&alpha, "capable", "kubernetes").await.as_deref(), Some("v1.35.4"));

    world.sandbox.wait_cluster(&world.namespace, "alpha").await.unwrap();
    manager.wait_idle().await;
    world.wait_ready("capable", "alpha", 2).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
}
