//! The Secret from which nodes get the files of the agent.

use chandler_api::tunnel::ClusterTunnel;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ResourceExt as _;
use serde_json::{Value, json};

/// Directory of `agent.yaml` on a node.
pub const AGENT_CONFIG_DIR: &str = "/etc/chandler-agent";
/// Directory of the agent's key and certificates on a node.
pub const AGENT_STATE_DIR: &str = "/var/lib/chandler-agent";

/// Whose a Secret is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOwner {
    /// It belongs to the ClusterTunnel.
    Own,
    /// It belongs to an earlier ClusterTunnel with the same name, with which Kubernetes deletes it.
    Former,
    /// It belongs to another object, or to a user.
    Other,
}

/// Returns whose a Secret with the name of the ClusterTunnel's is, by its owner references.
pub fn secret_owner(tunnel: &ClusterTunnel, owners: &[OwnerReference]) -> SecretOwner {
    let name = tunnel.name_any();
    let named = |owner: &&OwnerReference| {
        let group = owner.api_version.split('/').next();
        group == Some(chandler_api::extensions::GROUP) && owner.kind == "ClusterTunnel" && owner.name == name
    };
    let mut named = owners.iter().filter(named).peekable();
    if named.peek().is_none() {
        return SecretOwner::Other;
    }
    let uid = tunnel.uid().unwrap_or_default();
    if named.any(|owner| owner.uid == uid) { SecretOwner::Own } else { SecretOwner::Former }
}

/// Returns the static Pod of the agent, as YAML. It runs on the network of its node, with which it reaches the API server.
pub fn agent_pod(image: &str) -> String {
    let directory =
        |name: &str, path: &str, kind: &str| json!({"name": name, "hostPath": {"path": path, "type": kind}});
    let pod: Value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "chandler-agent", "namespace": "kube-system",
            "labels": {"app.kubernetes.io/name": "chandler-agent", "tier": "control-plane"},
        },
        "spec": {
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "automountServiceAccountToken": false,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "agent",
                "image": image,
                "args": ["--config", format!("{AGENT_CONFIG_DIR}/agent.yaml")],
                "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "96Mi"}},
                "securityContext": {
                    // The files that bootstrap providers write belong to root.
                    "runAsUser": 0,
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "config", "mountPath": AGENT_CONFIG_DIR, "readOnly": true},
                    {"name": "state", "mountPath": AGENT_STATE_DIR},
                ],
            }],
            "volumes": [
                directory("config", AGENT_CONFIG_DIR, "Directory"),
                directory("state", AGENT_STATE_DIR, "DirectoryOrCreate"),
            ],
        },
    });
    // Serializing maps and strings cannot fail. The fallback is valid too, because JSON is YAML.
    serde_saphyr::to_string(&pod).unwrap_or_else(|_| format!("{pod:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::{ClusterKey, cluster_owner},
        tunnel::{OwnHubs, new_tunnel},
    };

    #[test]
    fn a_secret_of_another_object_is_recognized() {
        let hubs = OwnHubs { addresses: &[], ca_bundle: "" };
        let key = ClusterKey::new("fleet", "blue");
        let mut tunnel = new_tunnel(&key, cluster_owner("blue", "1"), String::new(), None, &hubs);
        tunnel.metadata.uid = Some("2".to_owned());
        let owner = |api_version: &str, kind: &str, name: &str, uid: &str| OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        let api_version = "chandler.dev/v1alpha1";
        let rows = [
            (vec![], SecretOwner::Other),
            (vec![owner(api_version, "ClusterTunnel", "blue", "2")], SecretOwner::Own),
            (vec![owner(api_version, "ClusterTunnel", "blue", "1")], SecretOwner::Former),
            (
                vec![
                    owner(api_version, "ClusterTunnel", "blue", "1"),
                    owner(api_version, "ClusterTunnel", "blue", "2"),
                ],
                SecretOwner::Own,
            ),
            (vec![owner(api_version, "ClusterTunnel", "red", "2")], SecretOwner::Other),
            (vec![owner("example.com/v1", "ClusterTunnel", "blue", "2")], SecretOwner::Other),
            (vec![owner("cluster.x-k8s.io/v1beta2", "Cluster", "blue", "2")], SecretOwner::Other),
        ];
        for (owners, expected) in rows {
            assert_eq!(secret_owner(&tunnel, &owners), expected, "{owners:?}");
        }
    }

    #[test]
    fn the_pod_uses_the_network_and_the_files_of_its_node() {
        let pod: Value = serde_saphyr::from_str(&agent_pod("registry.example/agent:1")).unwrap();
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/agent:1");
        assert_eq!(pod["spec"]["hostNetwork"], true);
        assert_eq!(container["volumeMounts"][0]["readOnly"], true);
        assert_eq!(container["args"], json!(["--config", "/etc/chandler-agent/agent.yaml"]));
    }
}
