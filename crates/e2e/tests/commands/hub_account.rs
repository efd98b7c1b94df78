//! What the account of the hub may do, as docs/security.md describes it.

use serde_json::{Value, json};

use crate::documents::document;

/// Returns the rules of a role.
fn rules(objects: &[Value], kind: &str, name: &str) -> Value {
    let named = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let found = objects.iter().find(named).unwrap_or_else(|| panic!("there is no {kind} {name}"));
    found["rules"].clone()
}

/// The tests of tunnels run hubs with exactly these permissions, so they are also enough.
#[test]
fn the_hub_may_not_read_secrets_nor_the_lease_of_the_leader() {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&document("deploy/rbac.yaml")).unwrap();
    let everywhere = json!([
        {"apiGroups": ["chandler.dev"], "resources": ["clustertunnels"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["chandler.dev"], "resources": ["clustertunnels/status"], "verbs": ["patch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    ]);
    assert_eq!(rules(&objects, "ClusterRole", "chandler-system-hub"), everywhere);
    let own_namespace = json!([{
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["chandler-hubs"],
        "verbs": ["create", "patch"],
    }]);
    assert_eq!(rules(&objects, "Role", "chandler-hub"), own_namespace);
    let of_hub = |object: &&Value| object["subjects"].to_string().contains("chandler-hub");
    assert_eq!(objects.iter().find(of_hub), None, "only the chart binds these roles, if tunnels are enabled");
}
