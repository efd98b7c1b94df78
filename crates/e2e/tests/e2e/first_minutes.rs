//! The first minutes of a cluster: its control plane is initialized, and it has no Nodes yet.

use chandler_e2e::{
    wait::eventually,
    world::{World, config_value},
};
use chandler_sandbox::assets::KubernetesVersion;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use serde_json::json;

#[tokio::test]
async fn add_ons_that_need_no_nodes_are_installed_before_there_are_any() {
    let world = World::new("no-nodes").await;
    let manager = world.start_manager();
    // The first consists of a ConfigMap. The second has a Deployment.
    let waits = |values: &str| json!({"valuesTemplate": values, "options": {"wait": true}});
    world.apply_placement("config", "slow", waits("hold: false")).await;
    world.apply_placement("app", "hello", waits("replicas: 1")).await;
    let alpha = world.sandbox.cluster(&world.namespace, "alpha", 0, &[("fleet", "test")]).await.unwrap();

    world.wait_ready("config", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "config", "hold").await.as_deref(), Some("false"));
    world
        .wait_status("app", "alpha", "waiting for a Node", |status| status.status == "pending-install")
        .await;
    let greeting = eventually("its objects exist", || config_value(&alpha, "app", "greeting")).await;
    assert_eq!(greeting, "Hello from somewhere");
    let nodes: Api<Node> = Api::all(alpha.client().await.unwrap());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 0);

    let version = KubernetesVersion::default().to_string();
    alpha.add_node("first", "sandbox://first", &version).await.unwrap();
    world.wait_ready("app", "alpha", 1).await;
    manager.stop().await;
}
