//! A person's word stands above an answer that holds.

use std::sync::Arc;

use chandler_hooks::{Answer, Hook};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use kube::api::DeleteParams;
use serde_json::json;

use crate::world::{Script, World, until};

#[tokio::test]
async fn a_held_cluster_goes_on_by_annotation_for_the_hooks_it_names() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("overruled").await;
    let script = Arc::new(Script::default());
    let _serving = world.serve(&script).await;
    world.discovered().await;
    let plane = world.sandbox.cluster(&world.namespace, "blue", 1, &[]).await.unwrap();
    let workload = plane.client().await.unwrap();

    script.hold(
        Hook::BeforeClusterUpgrade,
        Answer::Refuse { message: "cni needs Kubernetes <1.35".to_owned() },
    );
    world.patch("blue", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let way_out = "annotation chandler.dev/proceed: BeforeClusterUpgrade on the Cluster lets it go on";
    world
        .topology_says("blue", &format!("BeforeClusterUpgrade: cni needs Kubernetes <1.35 ({way_out})"))
        .await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");
    let proceed = json!({"metadata": {"annotations": {"chandler.dev/proceed": "BeforeClusterUpgrade"}}});
    world.patch("blue", proceed).await;
    world.upgraded("blue", "v1.35.4").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.35.4");

    script.hold(Hook::BeforeClusterDelete, Answer::Wait { seconds: 2, message: "ingress goes".to_owned() });
    world.clusters().delete("blue", &DeleteParams::default()).await.unwrap();
    world.topology_says("blue", "BeforeClusterDelete: ingress goes").await;
    world.patch("blue", json!({"metadata": {"annotations": {"chandler.dev/proceed": "*"}}})).await;
    let clusters = world.clusters();
    until("gone", async || clusters.get_opt("blue").await.unwrap().is_none().then_some(())).await;
    chandler_hooks::unregister(&world.client, &world.namespace).await.unwrap();
}
