//! Objects as small as they may be.

use serde_json::{Value, json};

pub const CHART: &str = "HelmChartProxy";
pub const RELEASE: &str = "HelmReleaseProxy";

/// An object of a kind, named by the server; `changes` replaces fields of its spec.
pub fn object(kind: &str, changes: &Value) -> Value {
    let mut spec = json!({"chartName": "hello", "repoURL": "https://charts.example"});
    let own = match kind {
        CHART => json!({"clusterSelector": {}}),
        _ => json!({"clusterRef": {"name": "blue"}}),
    };
    for fields in [&own, changes] {
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    }
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": kind,
        "metadata": {"generateName": "hello-", "namespace": "default"}, "spec": spec,
    })
}

/// An object without one of its spec's fields.
pub fn without(kind: &str, field: &str) -> Value {
    let mut object = object(kind, &json!({}));
    object["spec"].as_object_mut().unwrap().remove(field).unwrap();
    object
}
