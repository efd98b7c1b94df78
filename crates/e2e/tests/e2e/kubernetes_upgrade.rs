//! Releases over an upgrade of Kubernetes on their cluster.

use chandler_e2e::world::{World, chart, config_value};
use chandler_sandbox::{assets::KubernetesVersion, provider::cluster_resource, testing};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

async fn ask_for_version(world: &World, cluster: &str, version: &str) {
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), &world.namespace, &cluster_resource());
    let asked = Patch::Merge(json!({"spec": {"topology": {"version": version}}}));
    clusters.patch(cluster, &PatchParams::default(), &asked).await.unwrap();
}

#[tokio::test]
async fn only_a_chart_that_reads_the_version_is_upgraded() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("minor").await;
    world.repository.publish(&chart("capable")).unwrap();
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.place("capable", "capable", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    world.ready("capable", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "capable", "kubernetes").await.as_deref(), Some("v1.34.4"));

    ask_for_version(&world, "alpha", "v1.35.4").await;
    // Once, and not before the API server is the new one: else the old version would stand in the second revision.
    world.ready("capable", "alpha", 2).await;
    assert_eq!(config_value(&alpha, "capable", "kubernetes").await.as_deref(), Some("v1.35.4"));

    world.sandbox.wait_cluster(&world.namespace, "alpha").await.unwrap();
    manager.settled().await;
    world.ready("capable", "alpha", 2).await;
    world.ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
}
