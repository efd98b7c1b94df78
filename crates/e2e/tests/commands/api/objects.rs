//! Minimal valid objects of each kind.

use serde_json::{Value, json};

pub const CHART: &str = "HelmChartProxy";
pub const RELEASE: &str = "HelmReleaseProxy";
pub const GRANT: &str = "ReferenceGrant";
pub const CATALOG: &str = "ExtensionCatalog";
pub const EXTENSION: &str = "Extension";
pub const INSTANCE: &str = "ExtensionInstance";
pub const ADDON: &str = "AddonRelease";
pub const POLICY: &str = "AddonPolicy";
pub const TENANCY: &str = "AddonTenancy";
pub const SOURCE: &str = "Source";
pub const SYNC: &str = "Sync";
pub const FLEET: &str = "FleetAddonConfig";
pub const TUNNEL: &str = "ClusterTunnel";

/// Returns the API group of a kind.
pub fn group(kind: &str) -> &'static str {
    match kind {
        CHART | RELEASE | FLEET => "addons.cluster.x-k8s.io",
        _ => "chandler.dev",
    }
}

fn minimal_spec(kind: &str) -> Value {
    let chart = json!({"repository": "https://charts.example", "chart": "hello"});
    match kind {
        CHART => json!({"chartName": "hello", "repoURL": "https://charts.example", "clusterSelector": {}}),
        RELEASE => {
            json!({"chartName": "hello", "repoURL": "https://charts.example", "clusterRef": {"name": "blue"}})
        }
        GRANT => json!({
            "from": [{"group": "addons.cluster.x-k8s.io", "kind": "HelmChartProxy", "namespace": "fleet"}],
            "to": [{"kind": "Secret"}],
        }),
        CATALOG => json!({"url": "https://charts.example"}),
        EXTENSION => json!({"versions": [{"version": "1.0.0", "source": chart}]}),
        INSTANCE => json!({"extension": {"name": "hello"}, "clusters": {"name": "blue"}}),
        ADDON => {
            json!({"cluster": "blue", "release": {"name": "hello", "namespace": "apps"}, "source": chart})
        }
        SOURCE => json!({"git": {"url": "https://git.example/fleet.git"}}),
        SYNC => json!({"source": {"sourceRef": {"name": "git"}}, "serviceAccountName": "deployer"}),
        FLEET | POLICY => json!({}),
        TENANCY => json!({"namespaces": {"names": ["team"]}}),
        TUNNEL => json!({
            "id": "0123456789abcdef0123456789abcdef", "epoch": 1, "clusterName": "blue",
            "hubs": [{"address": "hub.example:443", "caBundle": "-----BEGIN CERTIFICATE-----\n"}],
        }),
        other => panic!("unknown kind {other}"),
    }
}

/// Returns whether the objects of a kind are in no namespace.
pub fn is_cluster_scoped(kind: &str) -> bool {
    matches!(kind, FLEET | TENANCY)
}

fn metadata(kind: &str) -> Value {
    match kind {
        FLEET => json!({"name": "fleet-addon-config"}),
        TENANCY => json!({"generateName": "hello-"}),
        // It has the name of its Cluster.
        TUNNEL => json!({"name": "blue", "namespace": "default"}),
        _ => json!({"generateName": "hello-", "namespace": "default"}),
    }
}

/// Returns a minimal object, with a generated name if the kind allows it; `fields` replaces fields of its spec.
pub fn object(kind: &str, fields: &Value) -> Value {
    let mut spec = minimal_spec(kind);
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({
        "apiVersion": format!("{}/v1alpha1", group(kind)), "kind": kind,
        "metadata": metadata(kind), "spec": spec,
    })
}

/// Returns a minimal object without one field of its spec.
pub fn without(kind: &str, field: &str) -> Value {
    let mut object = object(kind, &json!({}));
    object["spec"].as_object_mut().unwrap().remove(field).unwrap();
    object
}
