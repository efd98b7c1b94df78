//! A Cluster's life as the hooks see it.

use std::{sync::Arc, time::Duration};

use chandler_hooks::{Answer, Hook};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use kube::api::DeleteParams;
use serde_json::json;

use crate::world::{Script, World, until};

#[tokio::test]
async fn an_upgrade_waits_while_refused_and_a_deletion_while_asked_to() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("life").await;
    let script = Arc::new(Script::default());
    let _serving = world.serve(&script).await;
    world.discovered().await;
    let plane = world.sandbox.cluster(&world.namespace, "blue", 1, &[]).await.unwrap();
    let workload = plane.client().await.unwrap();
    assert_eq!(script.asked(), [""; 0], "nothing is asked about a cluster that comes up");

    let refusal = "cni 1.2.0 needs Kubernetes <1.35";
    script.hold(Hook::BeforeClusterUpgrade, Answer::Refuse { message: refusal.to_owned() });
    world.patch("blue", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let shown = format!("Following hooks are blocking upgrade: BeforeClusterUpgrade: {refusal}");
    world.topology_says("blue", &shown).await;
    assert_eq!(script.asked(), ["BeforeClusterUpgrade blue v1.34.4 v1.35.4"]);
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");

    let moving = Answer::Wait { seconds: 2, message: "cni moves to 1.3.0".to_owned() };
    script.hold(Hook::AfterControlPlaneUpgrade, moving);
    world.topology_says("blue", "AfterControlPlaneUpgrade: cni moves to 1.3.0").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.35.4");
    script.release();
    let steps = [
        "BeforeClusterUpgrade blue v1.34.4 v1.35.4",
        "BeforeControlPlaneUpgrade blue v1.34.4 v1.35.4",
        "AfterControlPlaneUpgrade blue v1.35.4",
        "AfterClusterUpgrade blue v1.35.4",
    ];
    until("all hooks of an upgrade", async || (script.asked().len() == steps.len()).then_some(())).await;
    assert_eq!(script.asked(), steps);

    let removing = Answer::Wait { seconds: 2, message: "taking the ingress away".to_owned() };
    script.hold(Hook::BeforeClusterDelete, removing);
    world.clusters().delete("blue", &DeleteParams::default()).await.unwrap();
    let shown = "Following hooks are blocking delete: BeforeClusterDelete: taking the ingress away";
    world.topology_says("blue", shown).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    workload.apiserver_version().await.unwrap();
    script.release();
    let clusters = world.clusters();
    until("gone", async || clusters.get_opt("blue").await.unwrap().is_none().then_some(())).await;
    assert_eq!(script.asked().last().unwrap(), "BeforeClusterDelete blue");
    chandler_hooks::unregister(&world.client, &world.namespace).await.unwrap();
}
