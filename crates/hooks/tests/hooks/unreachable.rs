//! The behavior of Cluster API while the hook server is down.

use std::sync::Arc;

use chandler_hooks::{FailurePolicy, Hook, HookResponse};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use kube::Client;
use serde_json::json;

use crate::env::{ScriptedHandler, TestEnv};

/// Registers hooks with a failure policy, creates a cluster, stops the server, and requests an upgrade. Returns a client of the
/// cluster, too.
async fn upgrade_without_server(
    name: &str,
    policy: FailurePolicy,
) -> (TestEnv, Arc<ScriptedHandler>, Client) {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let mut env = TestEnv::new(name).await;
    env.options.failure_policy = policy;
    let handler = Arc::new(ScriptedHandler::default());
    let server = env.serve(&handler).await;
    env.wait_for_discovery().await;
    let plane = env.sandbox.topology_cluster(&env.namespace, "blue", 1, &[]).await.unwrap();
    server.stop().await;
    env.patch("blue", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let workload = plane.client().await.unwrap();
    (env, handler, workload)
}

#[tokio::test]
async fn with_fail_an_upgrade_does_not_start_but_completes_while_the_server_is_down() {
    let (env, handler, workload) = upgrade_without_server("unreachable", FailurePolicy::Fail).await;
    env.wait_for_topology_message("blue", "failed to call extension handler \"before-cluster-upgrade.").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");
    assert_eq!(handler.calls(), [""; 0]);

    let upgrading = HookResponse::RetryAfter { seconds: 2, message: "upgrading cni to 1.3.0".to_owned() };
    handler.set_response(Hook::AfterControlPlaneUpgrade, upgrading);
    let server = env.serve(&handler).await;
    env.wait_for_topology_message("blue", "AfterControlPlaneUpgrade: upgrading cni to 1.3.0").await;
    server.stop().await;
    env.wait_for_upgrade("blue", "v1.35.4").await;
    assert!(!handler.calls().iter().any(|call| call.starts_with("AfterClusterUpgrade")));
    chandler_hooks::unregister(&env.client, &env.namespace).await.unwrap();
}

#[tokio::test]
async fn with_ignore_an_upgrade_starts_while_the_server_is_down() {
    let (env, handler, workload) = upgrade_without_server("ignored", FailurePolicy::Ignore).await;
    env.wait_for_upgrade("blue", "v1.35.4").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.35.4");
    assert_eq!(handler.calls(), [""; 0], "no hook was answered");
    chandler_hooks::unregister(&env.client, &env.namespace).await.unwrap();
}
