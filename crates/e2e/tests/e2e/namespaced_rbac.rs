//! A manager with rights in its own namespace and no other, as the page about security tells how to give them.

use std::process::Command;

use chandler_e2e::{programs, wait::eventually, world::World};
use chandler_sandbox::service_account;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../../docs/security.md");
const ACCOUNT: &str = "narrowed";

/// The binding that the page shows, in a namespace and for the ServiceAccount of this test.
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

/// What stays as it is, for another account.
fn unchanged(kind: &str, metadata: &Value, role_kind: &str, role: &str) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role});
    for_account(json!({"kind": kind, "metadata": metadata, "roleRef": role}))
}

#[tokio::test]
async fn a_manager_of_one_namespace_needs_rights_there_only() {
    let world = World::new("narrowed").await;
    let account = json!({"name": ACCOUNT, "namespace": "chandler-system"});
    world.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})).await;
    for object in [
        binding(&world.namespace),
        binding("chandler-system"),
        unchanged(
            "ClusterRoleBinding",
            &json!({"name": ACCOUNT}),
            "ClusterRole",
            "chandler-system-manager-cluster",
        ),
        unchanged("RoleBinding", &account, "Role", "chandler-leader"),
    ] {
        world.apply(&object).await;
    }
    let config = service_account::kubeconfig(world.sandbox.management(), "chandler-system", ACCOUNT).await;
    std::fs::write(world.manager_config(), config.unwrap()).unwrap();
    let _alpha = world.cluster("alpha").await;
    let mut audit = world.sandbox.management().audit_log();
    let manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    world
        .change("hello", json!({"valuesTemplate": "greeting: Aye from {{ .InfraCluster.metadata.name }}"}))
        .await;
    world.ready("hello", "alpha", 2).await;
    let user = format!("system:serviceaccount:chandler-system:{ACCOUNT}");
    let asked: Vec<_> = audit.read().unwrap().into_iter().filter(|entry| entry.user == user).collect();
    assert!(asked.iter().any(|entry| entry.resource == "helmreleaseproxies" && entry.is_write()));
    let refused: Vec<_> = asked.into_iter().filter(|entry| entry.code == 403).collect();
    assert_eq!(refused, [], "it asks for nothing that it may not");
    manager.stop().await;

    let may = |namespace: &str| {
        let user = format!("--as=system:serviceaccount:chandler-system:{ACCOUNT}");
        let mut command =
            world.kubectl_command(&["auth", "can-i", "get", "secrets", &user, "--namespace", namespace]);
        command.output().unwrap().status.success()
    };
    assert!(may(&world.namespace) && !may("default") && !may("kube-system"));
    eventually("the doctor is content with its rights", || async {
        let mut command = Command::new(programs::chandler());
        command.args(["doctor", "--service-account", ACCOUNT, "--namespace", &world.namespace]);
        command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        text.contains("ok       rights: ServiceAccount chandler-system/narrowed has all").then_some(())
    })
    .await;
}
