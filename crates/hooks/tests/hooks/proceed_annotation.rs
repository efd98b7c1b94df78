//! The annotation that overrides blocking responses.

use std::sync::Arc;

use chandler_hooks::{Hook, HookResponse};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use kube::api::DeleteParams;
use serde_json::json;

use crate::env::{ScriptedHandler, TestEnv, wait_for};

#[tokio::test]
async fn proceed_annotation_unblocks_the_named_hooks() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let env = TestEnv::new("proceed").await;
    let handler = Arc::new(ScriptedHandler::default());
    let _server = env.serve(&handler).await;
    env.wait_for_discovery().await;
    let plane = env.sandbox.topology_cluster(&env.namespace, "blue", 1, &[]).await.unwrap();
    let workload = plane.client().await.unwrap();

    handler.set_response(
        Hook::BeforeClusterUpgrade,
        HookResponse::Block { message: "cni needs Kubernetes <1.35".to_owned() },
    );
    env.patch("blue", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let hint = "to proceed anyway, set annotation chandler.dev/proceed: BeforeClusterUpgrade on the Cluster";
    let condition = format!("BeforeClusterUpgrade: cni needs Kubernetes <1.35 ({hint})");
    env.wait_for_topology_message("blue", &condition).await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");
    let proceed = json!({"metadata": {"annotations": {"chandler.dev/proceed": "BeforeClusterUpgrade"}}});
    env.patch("blue", proceed).await;
    env.wait_for_upgrade("blue", "v1.35.4").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.35.4");

    let removing = HookResponse::RetryAfter { seconds: 2, message: "removing ingress".to_owned() };
    handler.set_response(Hook::BeforeClusterDelete, removing);
    env.clusters().delete("blue", &DeleteParams::default()).await.unwrap();
    env.wait_for_topology_message("blue", "BeforeClusterDelete: removing ingress").await;
    env.patch("blue", json!({"metadata": {"annotations": {"chandler.dev/proceed": "*"}}})).await;
    let clusters = env.clusters();
    wait_for("deleted", async || clusters.get_opt("blue").await.unwrap().is_none().then_some(())).await;
    chandler_hooks::unregister(&env.client, &env.namespace).await.unwrap();
}
