//! The hooks of an upgrade and of a deletion.

use std::{sync::Arc, time::Duration};

use chandler_hooks::{Hook, HookResponse};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use kube::api::DeleteParams;
use serde_json::json;

use crate::env::{ScriptedHandler, TestEnv, wait_for};

#[tokio::test]
async fn blocking_responses_delay_upgrade_and_deletion() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let env = TestEnv::new("lifecycle").await;
    let handler = Arc::new(ScriptedHandler::default());
    let _server = env.serve(&handler).await;
    env.wait_for_discovery().await;
    let plane = env.sandbox.topology_cluster(&env.namespace, "blue", 1, &[]).await.unwrap();
    let workload = plane.client().await.unwrap();
    assert_eq!(handler.calls(), [""; 0], "no hook is called for a new cluster");

    let message = "cni 1.2.0 needs Kubernetes <1.35";
    handler.set_response(Hook::BeforeClusterUpgrade, HookResponse::Block { message: message.to_owned() });
    env.patch("blue", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let condition = format!("Following hooks are blocking upgrade: BeforeClusterUpgrade: {message}");
    env.wait_for_topology_message("blue", &condition).await;
    assert_eq!(handler.calls(), ["BeforeClusterUpgrade blue v1.34.4 v1.35.4"]);
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");

    let upgrading = HookResponse::RetryAfter { seconds: 2, message: "upgrading cni to 1.3.0".to_owned() };
    handler.set_response(Hook::AfterControlPlaneUpgrade, upgrading);
    env.wait_for_topology_message("blue", "AfterControlPlaneUpgrade: upgrading cni to 1.3.0").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.35.4");
    handler.clear_response();
    let calls = [
        "BeforeClusterUpgrade blue v1.34.4 v1.35.4",
        "BeforeControlPlaneUpgrade blue v1.34.4 v1.35.4",
        "AfterControlPlaneUpgrade blue v1.35.4",
        "AfterClusterUpgrade blue v1.35.4",
    ];
    wait_for("all hooks of an upgrade", async || (handler.calls().len() == calls.len()).then_some(())).await;
    assert_eq!(handler.calls(), calls);

    let removing = HookResponse::RetryAfter { seconds: 2, message: "removing ingress".to_owned() };
    handler.set_response(Hook::BeforeClusterDelete, removing);
    env.clusters().delete("blue", &DeleteParams::default()).await.unwrap();
    let condition = "Following hooks are blocking delete: BeforeClusterDelete: removing ingress";
    env.wait_for_topology_message("blue", condition).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    workload.apiserver_version().await.unwrap();
    handler.clear_response();
    let clusters = env.clusters();
    wait_for("deleted", async || clusters.get_opt("blue").await.unwrap().is_none().then_some(())).await;
    assert_eq!(handler.calls().last().unwrap(), "BeforeClusterDelete blue");
    chandler_hooks::unregister(&env.client, &env.namespace).await.unwrap();
}
