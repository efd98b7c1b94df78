//! The objects that tenants write.

use serde_json::{Value, json};

use crate::environment::{CA_KEY, CA_SECRET, GROUP, TARGET_NAMESPACE};

/// The label of Clusters with their name, and the one with the group to which several of them belong.
pub const CLUSTER_LABEL: &str = "cluster";
pub const GROUP_LABEL: &str = "group";

/// Returns an object of Chandler's own group.
pub fn object(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

/// Returns a `HelmChartProxy` for the Clusters with a label, whose release has the same name; `fields` replaces fields of its spec.
pub fn chart_proxy(namespace: &str, name: &str, (label, value): (&str, &str), fields: &Value) -> Value {
    let spec = json!({
        "clusterSelector": {"matchLabels": {label: value}}, "releaseName": name, "namespace": TARGET_NAMESPACE,
        "tlsConfig": {"caSecret": {"name": CA_SECRET}},
    });
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "HelmChartProxy",
        "metadata": {"name": name, "namespace": namespace}, "spec": with_fields(spec, fields),
    })
}

/// Returns an `ExtensionInstance` for one Cluster, whose release has the same name; `fields` are other fields of its spec.
pub fn instance(namespace: &str, name: &str, cluster: &str, fields: &Value) -> Value {
    let spec = json!({
        "clusters": {"name": cluster}, "options": {"wait": false},
        "release": {"name": name, "namespace": TARGET_NAMESPACE},
    });
    object("ExtensionInstance", namespace, name, &with_fields(spec, fields))
}

/// Returns an `ExtensionCatalog` of a repository with the certificate authority of the benchmark.
pub fn catalog(namespace: &str, name: &str, url: &str, fields: &Value) -> Value {
    let authority = json!({"name": CA_SECRET, "key": CA_KEY});
    let spec = json!({"url": url, "interval": "24h", "certificateAuthority": authority});
    object("ExtensionCatalog", namespace, name, &with_fields(spec, fields))
}

/// Returns an `Extension` with one version for all versions of Kubernetes.
pub fn extension(namespace: &str, name: &str, version: &str, source: &Value) -> Value {
    let version = json!({"version": version, "kubernetes": "*", "source": source});
    object("Extension", namespace, name, &json!({"versions": [version]}))
}

/// Returns a Secret with one key.
pub fn secret(namespace: &str, name: &str, key: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
        "stringData": {key: value},
    })
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Adds fields to a map, or replaces them.
fn with_fields(mut map: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().into_iter().flatten() {
        map[name] = value.clone();
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_replace_those_of_a_placement() {
        let fields = json!({"releaseName": "other", "chartName": "web"});
        let proxy = chart_proxy("red", "a", (CLUSTER_LABEL, "main"), &fields);
        assert_eq!(proxy["spec"]["releaseName"], "other");
        assert_eq!(proxy["spec"]["chartName"], "web");
        assert_eq!(proxy["spec"]["clusterSelector"]["matchLabels"]["cluster"], "main");
    }
}
