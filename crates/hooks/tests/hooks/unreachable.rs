//! What Cluster API does when nobody answers.

use std::sync::Arc;

use chandler_hooks::{Answer, Hook};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use serde_json::json;

use crate::world::{Script, World};

#[tokio::test]
async fn an_upgrade_does_not_begin_unasked_and_does_not_stop_halfway() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("unreachable").await;
    let script = Arc::new(Script::default());
    let serving = world.serve(&script).await;
    world.discovered().await;
    let plane = world.sandbox.cluster(&world.namespace, "blue", 1, &[]).await.unwrap();
    let workload = plane.client().await.unwrap();

    serving.stop().await;
    world.patch("blue", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    world.topology_says("blue", "failed to call extension handler \"before-cluster-upgrade.").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");
    assert_eq!(script.asked(), [""; 0]);

    let moving = Answer::Wait { seconds: 2, message: "cni moves to 1.3.0".to_owned() };
    script.hold(Hook::AfterControlPlaneUpgrade, moving);
    let serving = world.serve(&script).await;
    world.topology_says("blue", "AfterControlPlaneUpgrade: cni moves to 1.3.0").await;
    serving.stop().await;
    world.upgraded("blue", "v1.35.4").await;
    assert!(!script.asked().iter().any(|asked| asked.starts_with("AfterClusterUpgrade")));
    chandler_hooks::unregister(&world.client, &world.namespace).await.unwrap();
}
