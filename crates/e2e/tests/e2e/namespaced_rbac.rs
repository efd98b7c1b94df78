//! A manager with permissions in a single namespace, granted as docs/security.md describes.

use std::process::Command;

use chandler_e2e::{programs, wait::eventually, world::World};
use chandler_sandbox::service_account;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../../docs/security.md");
const ACCOUNT: &str = "namespaced";

/// Returns the `RoleBinding` of the page for a namespace and the ServiceAccount of this test.
fn binding(namespace: &str) -> Value {
    let block = PAGE.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let mut binding: Value = serde_saphyr::from_str(block).unwrap();
    binding["metadata"] = json!({"name": format!("{ACCOUNT}-manager"), "namespace": namespace});
    for_account(binding)
}

fn for_account(mut binding: Value) -> Value {
    binding["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    binding["subjects"] =
        json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "chandler-system"}]);
    binding
}

/// Returns a copy of a shipped binding for the ServiceAccount of this test.
fn shipped_binding(kind: &str, metadata: &Value, role_kind: &str, role: &str) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role});
    for_account(json!({"kind": kind, "metadata": metadata, "roleRef": role}))
}

#[tokio::test]
async fn a_manager_limited_to_one_namespace_needs_permissions_only_there() {
    let world = World::new("namespaced").await;
    let account = json!({"name": ACCOUNT, "namespace": "chandler-system"});
    world.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})).await;
    for object in [
        binding(&world.namespace),
        binding("chandler-system"),
        shipped_binding(
            "ClusterRoleBinding",
            &json!({"name": ACCOUNT}),
            "ClusterRole",
            "chandler-system-manager-cluster",
        ),
        shipped_binding("RoleBinding", &account, "Role", "chandler-leader"),
    ] {
        world.apply(&object).await;
    }
    let kubeconfig =
        service_account::kubeconfig(world.sandbox.management(), "chandler-system", ACCOUNT).await;
    std::fs::write(world.manager_kubeconfig(), kubeconfig.unwrap()).unwrap();
    let _alpha = world.create_cluster("alpha").await;
    let mut audit = world.sandbox.management().audit_log();
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world
        .patch_placement(
            "hello",
            json!({"valuesTemplate": "greeting: Aye from {{ .InfraCluster.metadata.name }}"}),
        )
        .await;
    world.wait_ready("hello", "alpha", 2).await;
    let user = format!("system:serviceaccount:chandler-system:{ACCOUNT}");
    let requests: Vec<_> = audit.read().unwrap().into_iter().filter(|entry| entry.user == user).collect();
    assert!(requests.iter().any(|entry| entry.resource == "helmreleaseproxies" && entry.is_write()));
    let forbidden: Vec<_> = requests.into_iter().filter(|entry| entry.code == 403).collect();
    assert_eq!(forbidden, [], "it sends no request that is forbidden");
    manager.stop().await;

    let can_read_secrets = |namespace: &str| {
        let user = format!("--as=system:serviceaccount:chandler-system:{ACCOUNT}");
        let mut command =
            world.kubectl_command(&["auth", "can-i", "get", "secrets", &user, "--namespace", namespace]);
        command.output().unwrap().status.success()
    };
    assert!(
        can_read_secrets(&world.namespace)
            && !can_read_secrets("default")
            && !can_read_secrets("kube-system")
    );
    eventually("the doctor reports that all permissions are granted", || async {
        let mut command = Command::new(programs::chandler());
        command.args(["doctor", "--service-account", ACCOUNT, "--namespace", &world.namespace]);
        command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        text.contains("ok       rights: ServiceAccount chandler-system/namespaced has all").then_some(())
    })
    .await;
}
