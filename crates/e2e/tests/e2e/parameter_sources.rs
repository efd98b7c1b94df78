//! Parameters from lists of objects and from objects of a cluster, mapped by templates.

use chandler_e2e::{extension_world::ExtensionWorld, wait::eventually};
use chandler_sandbox::plane::Plane;
use serde_json::{Value, json};

/// Arguments for a manager that reads sources every second.
const READ_OFTEN: [&str; 2] = ["--parameters-seconds", "1"];

/// The users of a cluster.
fn users(test: &ExtensionWorld, cluster: &str, users: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("users-of-{cluster}"), "namespace": test.world.namespace},
        "data": {"users": json!({"users": users}).to_string()},
    })
}

/// The SSH key of a user.
fn ssh_key(test: &ExtensionWorld, user: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": user, "namespace": test.world.namespace, "labels": {"example.com/ssh-key": "user"}},
        "stringData": {"key": key},
    })
}

/// Waits until a release has these keys, by user.
async fn wait_keys(test: &ExtensionWorld, plane: &Plane, expected: Value) {
    eventually(&format!("{} has the keys {expected}", plane.name()), || async {
        let values = test.world.helm(plane, &["get", "values", "ssh"]);
        (values["authorizedKeys"] == expected).then_some(())
    })
    .await;
}

/// Lets the ServiceAccount list the Secrets of the namespace, and Chandler act as the account.
async fn allow_lists(test: &ExtensionWorld) {
    let namespace = &test.world.namespace;
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let binding = |name: &str, kind: &str, subject: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata(name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}, "subjects": [subject],
        })
    };
    let account = json!({"kind": "ServiceAccount", "name": "reader", "namespace": namespace});
    let manager =
        json!({"kind": "ServiceAccount", "name": "chandler-manager", "namespace": "chandler-system"});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("reader")}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata("list-keys"),
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}],
        }),
        binding("list-keys", "Role", account),
        binding("chandler-impersonator", "ClusterRole", manager),
    ] {
        test.world.apply(&object).await;
    }
}

/// Requirement 6.1 of KKP: a mapping of the users of a cluster to their SSH keys.
#[tokio::test]
async fn the_ssh_keys_of_the_users_of_each_cluster_are_parameters() {
    let test = ExtensionWorld::new("ssh-keys").await;
    let alpha = test.world.create_cluster("alpha").await;
    let beta = test.world.create_cluster("beta").await;
    let manager = test.world.start_manager_with(&READ_OFTEN);
    test.world.apply(&users(&test, "alpha", &["anna", "ben"])).await;
    test.world.apply(&users(&test, "beta", &["ben"])).await;
    test.world.apply(&ssh_key(&test, "anna", "ssh-rsa CANARY-of-anna")).await;
    test.world.apply(&ssh_key(&test, "ben", "ssh-rsa CANARY-of-ben")).await;
    test.apply_extension("ssh", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let template = "authorizedKeys:\n\
                    {{- range .Objects }}{{ if has .metadata.name $.Values.users }}\n\
                    \x20 {{ .metadata.name }}: {{ .data.key | quote }}\n\
                    {{- end }}{{ end }}\n";
    let from = json!([
        {"configMap": {"name": "users-of-{{ .Cluster.metadata.name }}", "key": "users"}},
        {
            "objects": {"apiVersion": "v1", "kind": "Secret", "selector": {"matchLabels": {"example.com/ssh-key": "user"}}},
            "template": template,
        },
    ]);
    let fields = json!({"parametersFrom": from, "serviceAccountName": "reader"});
    test.apply_instance("ssh", "ssh", fields).await;
    let message = test.wait_instance_reason("ssh", "ResolutionFailed").await;
    assert!(message.contains("may not act as ServiceAccount"), "{message}");
    allow_lists(&test).await;

    for (cluster, plane, keys) in [
        ("alpha", &alpha, json!({"anna": "ssh-rsa CANARY-of-anna", "ben": "ssh-rsa CANARY-of-ben"})),
        ("beta", &beta, json!({"ben": "ssh-rsa CANARY-of-ben"})),
    ] {
        let release = test.wait_ready("ssh", cluster, "1.0.0").await;
        assert!(release.spec.values.is_none() && release.spec.values_secret.is_some());
        assert!(!serde_json::to_string(&release).unwrap().contains("CANARY"));
        wait_keys(&test, plane, keys).await;
    }

    // A new key, and another list, reach the clusters that they concern.
    test.world.apply(&ssh_key(&test, "carl", "ssh-rsa CANARY-of-carl")).await;
    test.world.apply(&users(&test, "beta", &["carl"])).await;
    wait_keys(&test, &beta, json!({"carl": "ssh-rsa CANARY-of-carl"})).await;
    let history = test.world.history(&alpha, "ssh");
    assert_eq!(history.len(), 1, "the users of the other cluster have not changed: {history:?}");

    // Changes are watched as the ServiceAccount: this manager does not poll.
    manager.stop().await;
    let manager = test.world.start_manager_with(&["--parameters-seconds", "3600"]);
    manager.wait_idle().await;
    test.world.apply(&ssh_key(&test, "carl", "ssh-rsa CANARY-of-carl-again")).await;
    wait_keys(&test, &beta, json!({"carl": "ssh-rsa CANARY-of-carl-again"})).await;
    let history = test.world.history(&alpha, "ssh");
    assert_eq!(history.len(), 1, "the key is not one of its users: {history:?}");

    // A list that is missing for one cluster concerns that one only, and a failing template quotes nothing.
    let gamma =
        "users-of-{{ .Cluster.metadata.name }}-{{ if eq .Cluster.metadata.name \"beta\" }}none{{ end }}";
    let from = json!([
        {"configMap": {"name": gamma, "key": "users", "optional": true}},
        {
            "objects": {"apiVersion": "v1", "kind": "Secret", "selector": {"matchLabels": {"example.com/ssh-key": "user"}}},
            "template": "{{ range .Objects }}{{ fail .data.key }}{{ end }}",
        },
    ]);
    test.apply_instance("ssh", "ssh", json!({"parametersFrom": from, "serviceAccountName": "reader"})).await;
    let message = test.wait_instance_reason("ssh", "ResolutionFailed").await;
    assert!(message.contains("(redacted)") && !message.contains("CANARY"), "{message}");
    assert!(!manager.logs().contains("CANARY"));
}
