//! The changes that commands make. Pure: each function returns a merge patch.

use chandler_api::tunnel::{ClusterTunnel, TUNNEL_DISABLED, TUNNEL_ENABLED, TUNNEL_LABEL};
use chandler_core::tunnel::{Enabled, has_tunnel_variable};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

/// Returns what enables the tunnel of a Cluster.
pub fn enabled_by(cluster: &DynamicObject) -> Enabled {
    chandler_core::tunnel::enabled_by(&cluster.metadata, &cluster.data)
}

/// Returns the patch that enables the tunnel of a Cluster, or `None` if it is enabled.
pub fn enable(cluster: &DynamicObject) -> Option<Value> {
    (enabled_by(cluster) == Enabled::No).then(|| label(Some(TUNNEL_ENABLED)))
}

/// Returns the patch that disables the tunnel of a Cluster, or `None` if it is disabled. A variable of the topology is
/// overridden by the label, because the class of the cluster may set it.
pub fn disable(cluster: &DynamicObject) -> Option<Value> {
    match enabled_by(cluster) {
        Enabled::No => None,
        Enabled::Label if !has_tunnel_variable(&cluster.data) => Some(label(None)),
        Enabled::Label | Enabled::Variable => Some(label(Some(TUNNEL_DISABLED))),
    }
}

fn label(value: Option<&str>) -> Value {
    json!({"metadata": {"labels": {TUNNEL_LABEL: value}}})
}

/// Returns the next epoch, and the patch that sets it. The patch fails if the object has changed since it was read, so that
/// two users who revoke at the same time do not revoke each other's agents.
pub fn revoke(tunnel: &ClusterTunnel) -> (u32, Value) {
    let epoch = tunnel.spec.epoch.saturating_add(1);
    let patch = json!({
        "metadata": {"resourceVersion": tunnel.resource_version()},
        "spec": {"epoch": epoch},
    });
    (epoch, patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tunnel;

    fn cluster(label: Option<&str>, variable: Option<Value>) -> DynamicObject {
        let variables: Vec<Value> =
            variable.into_iter().map(|value| json!({"name": "tunnel", "value": value})).collect();
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "blue", "labels": label.map(|label| json!({TUNNEL_LABEL: label}))},
            "spec": {"topology": {"variables": variables}},
        }))
        .unwrap()
    }

    #[test]
    fn the_label_takes_precedence_over_the_variable() {
        let rows = [
            (None, None, Enabled::No),
            (Some("enabled"), None, Enabled::Label),
            (Some("other"), None, Enabled::No),
            (None, Some(json!(true)), Enabled::Variable),
            (None, Some(json!({"enabled": true})), Enabled::Variable),
            (None, Some(json!(false)), Enabled::No),
            (None, Some(json!({"enabled": false})), Enabled::No),
            (Some("disabled"), Some(json!(true)), Enabled::No),
            (Some("enabled"), Some(json!(true)), Enabled::Label),
        ];
        for (label, variable, expected) in rows {
            assert_eq!(enabled_by(&cluster(label, variable.clone())), expected, "{label:?} {variable:?}");
        }
    }

    #[test]
    fn a_tunnel_is_enabled_and_disabled_by_the_label() {
        let set = |value: Value| Some(json!({"metadata": {"labels": {"chandler.dev/tunnel": value}}}));
        let rows = [
            (None, None, set(json!("enabled")), None),
            (Some("enabled"), None, None, set(Value::Null)),
            (None, Some(json!(true)), None, set(json!("disabled"))),
            (Some("enabled"), Some(json!(true)), None, set(json!("disabled"))),
            (Some("disabled"), Some(json!(true)), set(json!("enabled")), None),
        ];
        for (label, variable, on, off) in rows {
            let cluster = cluster(label, variable);
            assert_eq!((enable(&cluster), disable(&cluster)), (on, off), "{:?}", cluster.metadata.labels);
        }
    }

    #[test]
    fn revoking_needs_the_object_that_was_read() {
        let (epoch, patch) = revoke(&tunnel("blue"));
        assert_eq!(epoch, 2);
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "spec": {"epoch": 2}}));
    }
}
