//! The facts about a Cluster that decide about its tunnel.

use chandler_api::{
    capi::PAUSED_ANNOTATION,
    tunnel::{TUNNEL_DISABLED, TUNNEL_ENABLED, TUNNEL_LABEL, TUNNEL_VARIABLE},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{cluster_conditions::conditions_of, conditions};

/// Condition of a Cluster: Cluster API has reached it recently.
const REMOTE_CONNECTION_PROBE: &str = "RemoteConnectionProbe";

/// The facts about a Cluster that decide about its tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelCluster {
    /// Whether it is to be reached through a tunnel.
    pub enabled: bool,
    /// Host and port of its API server. `None` until they are known.
    pub endpoint: Option<String>,
    pub paused: bool,
    pub deleting: bool,
    /// Whether Cluster API reaches it. `None` if Cluster API has not reported it.
    pub reached: Option<bool>,
}

impl TunnelCluster {
    /// Reads a Cluster: its metadata, and the rest in the JSON form of the API server.
    pub fn of(metadata: &ObjectMeta, cluster: &Value) -> Self {
        let probe = conditions_of(cluster);
        let probe = conditions::find(&probe, REMOTE_CONNECTION_PROBE);
        Self {
            enabled: enabled_by(metadata, cluster) != Enabled::No,
            endpoint: endpoint(cluster),
            paused: cluster.pointer("/spec/paused") == Some(&Value::Bool(true))
                || metadata.annotations.as_ref().is_some_and(|all| all.contains_key(PAUSED_ANNOTATION)),
            deleting: metadata.deletion_timestamp.is_some(),
            reached: probe.map(|probe| probe.status == "True"),
        }
    }
}

/// What enables the tunnel of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabled {
    /// Nothing: Chandler connects to the cluster directly.
    No,
    /// The label `chandler.dev/tunnel`.
    Label,
    /// The topology variable `tunnel`.
    Variable,
}

/// Returns what enables the tunnel of a Cluster. The label takes precedence over the variable.
pub fn enabled_by(metadata: &ObjectMeta, cluster: &Value) -> Enabled {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(TUNNEL_LABEL)).map(String::as_str);
    match label {
        Some(TUNNEL_ENABLED) => Enabled::Label,
        Some(TUNNEL_DISABLED) => Enabled::No,
        _ if has_tunnel_variable(cluster) => Enabled::Variable,
        _ => Enabled::No,
    }
}

/// Returns whether the topology variable `tunnel` is `true`, or an object with `enabled: true`.
pub fn has_tunnel_variable(cluster: &Value) -> bool {
    variable(cluster).is_some_and(|value| *value == true || value["enabled"] == true)
}

fn variable(cluster: &Value) -> Option<&Value> {
    let variables = cluster.pointer("/spec/topology/variables")?.as_array()?;
    variables.iter().find(|one| one["name"] == TUNNEL_VARIABLE).map(|found| &found["value"])
}

fn endpoint(cluster: &Value) -> Option<String> {
    let endpoint = cluster.pointer("/spec/controlPlaneEndpoint")?;
    let host = endpoint["host"].as_str().filter(|host| !host.is_empty())?;
    let port = endpoint["port"].as_u64().filter(|port| *port > 0)?;
    if host.contains(':') && !host.starts_with('[') {
        return Some(format!("[{host}]:{port}"));
    }
    Some(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(label: Option<&str>, cluster: &Value) -> TunnelCluster {
        let labels = label.map(|value| [(TUNNEL_LABEL.to_owned(), value.to_owned())].into());
        TunnelCluster::of(&ObjectMeta { labels, ..ObjectMeta::default() }, cluster)
    }

    #[test]
    fn the_label_or_the_topology_variable_enables_the_tunnel() {
        let variable = |value: Value| {
            json!({"spec": {"topology": {"variables": [
                {"name": "other", "value": true}, {"name": "tunnel", "value": value},
            ]}}})
        };
        let rows = [
            (Some("enabled"), json!({}), true),
            (Some("enabled"), variable(json!(false)), true),
            (Some("disabled"), variable(json!(true)), false),
            (Some("other"), json!({}), false),
            (Some("other"), variable(json!(true)), true),
            (None, json!({}), false),
            (None, variable(json!(true)), true),
            (None, variable(json!({"enabled": true})), true),
            (None, variable(json!({"enabled": false})), false),
            (None, variable(json!("true")), false),
            (None, variable(json!(null)), false),
        ];
        for (label, cluster, expected) in rows {
            assert_eq!(read(label, &cluster).enabled, expected, "{label:?} {cluster}");
        }
    }

    #[test]
    fn the_endpoint_has_a_host_and_a_port() {
        let rows = [
            (json!({"host": "10.0.0.7", "port": 6443}), Some("10.0.0.7:6443")),
            (json!({"host": "api.blue.example", "port": 443}), Some("api.blue.example:443")),
            (json!({"host": "fd00::7", "port": 6443}), Some("[fd00::7]:6443")),
            (json!({"host": "[fd00::7]", "port": 6443}), Some("[fd00::7]:6443")),
            (json!({"host": "", "port": 0}), None),
            (json!({"host": "10.0.0.7"}), None),
            (json!(null), None),
        ];
        for (endpoint, expected) in rows {
            let cluster = json!({"spec": {"controlPlaneEndpoint": endpoint}});
            assert_eq!(read(None, &cluster).endpoint.as_deref(), expected, "{endpoint}");
        }
    }

    #[test]
    fn the_probe_of_cluster_api_is_read() {
        let probe = |status: &str| {
            json!({"status": {"conditions": [{
                "type": "RemoteConnectionProbe", "status": status, "reason": "Probe", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}})
        };
        let rows =
            [(probe("True"), Some(true)), (probe("False"), Some(false)), (probe("Unknown"), Some(false))];
        for (cluster, expected) in rows {
            assert_eq!(read(None, &cluster).reached, expected);
        }
        assert_eq!(read(None, &json!({})).reached, None);
    }
}
