//! `chandler.dev/v1alpha1`, kind `ClusterTunnel`: the way to a cluster that only dials out.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_core::Rule;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Label of a Cluster that is reached through a tunnel, with the value [`TUNNEL_ENABLED`]. With the value
/// [`TUNNEL_DISABLED`] it is not, whatever its topology says.
pub const TUNNEL_LABEL: &str = "chandler.dev/tunnel";
/// Value of [`TUNNEL_LABEL`].
pub const TUNNEL_ENABLED: &str = "enabled";
/// Value of [`TUNNEL_LABEL`].
pub const TUNNEL_DISABLED: &str = "disabled";
/// Variable of a topology: `true`, or an object with `enabled: true`.
pub const TUNNEL_VARIABLE: &str = "tunnel";
/// Suffix of the name of the Secret from which nodes get the files of the agent. The rest is the name of the Cluster.
pub const TUNNEL_SECRET_SUFFIX: &str = "-tunnel";
/// Key of that Secret with the configuration of the agent.
pub const AGENT_CONFIG_KEY: &str = "agent.yaml";
/// Key of that Secret with the static Pod of the agent.
pub const AGENT_POD_KEY: &str = "pod.yaml";
/// Finalizer of a ClusterTunnel. It is removed after the Cluster is gone, or after its kubeconfig has no proxy any more.
pub const TUNNEL_FINALIZER: &str = "clustertunnel.chandler.dev";
/// Condition of a ClusterTunnel: an agent has a certificate of the current epoch.
pub const JOINED: &str = "Joined";
/// Condition of a ClusterTunnel: an agent is connected to a hub.
pub const CONNECTED: &str = "Connected";
/// Condition of a ClusterTunnel: the kubeconfig Secret of the Cluster uses the hub as its proxy.
pub const KUBECONFIG_PROXIED: &str = "KubeconfigProxied";
/// Default of [`ClusterTunnelSpec::target`]: the API server on the node of the agent.
pub const DEFAULT_TARGET: &str = "127.0.0.1:6443";
/// Default of [`ClusterTunnelSpec::connections`].
pub const DEFAULT_CONNECTIONS: u32 = 2;
/// Prefix of the field manager with which a replica of the hub writes the status. The rest is the name of the replica.
pub const HUB_FIELD_MANAGER_PREFIX: &str = "chandler-hub-";
/// Name of the Lease in the namespace of Chandler that all replicas of the hub renew.
pub const HUBS_LEASE: &str = "chandler-hubs";
/// Prefix of the annotations of [`HUBS_LEASE`]. The rest is the name of a replica, and the value is when it was alive last.
pub const HUB_RENEWAL_PREFIX: &str = "hub.chandler.dev/";
/// The largest number of connections that a replica of the hub writes to [`ClusterTunnelStatus::agents`], which has room for
/// those of 16 replicas.
pub const MAX_AGENTS_PER_HUB: usize = 32;

/// The tunnel to a cluster that only dials out.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "ClusterTunnel",
    plural = "clustertunnels",
    shortname = "ctun",
    category = "chandler",
    doc = "The tunnel to a cluster that only dials out. Chandler creates it for a Cluster with the label `chandler.dev/tunnel: enabled` or the topology variable `tunnel`.",
    namespaced,
    status = "ClusterTunnelStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(
        name = "Connected",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Connected')].status"
    ),
    printcolumn(name = "LastSeen", type_ = "date", json_path = ".status.lastSeen"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ClusterTunnelSpec {
    /// Identifies the tunnel in the certificates of its agents: 32 hexadecimal digits, random. It is the same in every
    /// management cluster that the Cluster is moved to.
    #[schemars(length(min = 32, max = 32), extend("pattern" = "^[0-9a-f]{32}$"))]
    #[x_kube(validation = immutable())]
    pub id: String,
    /// Certificates, join tokens and proxy passwords of other epochs are refused. `chandler tunnel revoke` adds 1.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    #[x_kube(validation = never_decreases())]
    pub epoch: u32,
    /// Name of the Cluster in the same namespace.
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    #[x_kube(validation = immutable())]
    pub cluster_name: String,
    /// Host and port of the Cluster's API server, as in its kubeconfig. The hub connects clients that ask for it, and refuses
    /// every other address. Chandler copies it from `spec.controlPlaneEndpoint` of the Cluster; unset until that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub endpoint: Option<String>,
    /// The hubs that agents connect to. Chandler keeps its own up to date. Hubs of another installation are added before a
    /// move to its management cluster, and removed after it.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["address".into()]))]
    pub hubs: Vec<TunnelHub>,
    /// Host and port of the API server, as agents reach it. An agent connects to nothing else.
    #[serde(default = "default_target")]
    #[schemars(length(max = 512), extend("pattern" = HOST_AND_PORT))]
    pub target: String,
    /// HTTP proxy through which agents reach the hubs, such as `http://proxy.example:3128`. If unset, they connect directly.
    /// A user name and a password in it are visible to all users who may read this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("pattern" = "^http://[^/ ]+/?$"))]
    pub proxy: Option<String>,
    /// Number of connections that each agent keeps to each hub.
    #[serde(default = "default_connections")]
    #[schemars(range(min = 1, max = 8))]
    pub connections: u32,
}

/// A hub, as agents reach it.
#[derive(KubeSchema, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct TunnelHub {
    /// Host and port.
    #[schemars(length(min = 3, max = 512), extend("pattern" = HOST_AND_PORT))]
    pub address: String,
    /// The certificates, as PEM, that must have signed the certificate of the hub. No others are trusted.
    #[schemars(length(max = 65_536), extend("pattern" = "^\\s*-----BEGIN CERTIFICATE-----"))]
    pub ca_bundle: String,
    /// Join token of another installation, which is sent to agents through the tunnel. Unset for the hubs of the own
    /// installation, which sign tokens themselves. It expires after a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub token: Option<String>,
}

// A join token is a secret.
impl fmt::Debug for TunnelHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelHub").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Observed state of a ClusterTunnel.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ClusterTunnelStatus {
    /// Conditions of the object: `Ready`, `Joined`, `Connected` and `KubeconfigProxied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The connections of agents. Each replica of the hub writes its own, at most 32, and the manager removes those of a replica
    /// that has not renewed its part of Lease `chandler-hubs` for a minute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["hub".into(), "connection".into()]))]
    pub agents: Vec<TunnelAgent>,
    /// The last join that each replica of the hub has granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["hub".into()]))]
    pub joins: Vec<TunnelJoin>,
    /// When the last agent was connected. Unset while one is connected, or if none ever was. The manager writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// The newest epoch in which an agent has joined. The manager writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_epoch: Option<u32>,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A connection of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunnelAgent {
    /// Name of the replica of the hub.
    pub hub: String,
    /// Identifies the connection at this replica.
    pub connection: String,
    /// The epoch of the agent's certificate.
    pub epoch: u32,
    /// When it was established.
    pub since: Time,
    /// The node of the agent, as the agent says.
    #[serde(default)]
    pub node: String,
    /// The version of the agent, as the agent says.
    #[serde(default)]
    pub version: String,
}

/// A join that a replica of the hub has granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunnelJoin {
    /// Name of the replica of the hub.
    pub hub: String,
    /// The epoch of the certificate.
    pub epoch: u32,
    /// When the certificate was issued.
    pub at: Time,
}

const HOST_AND_PORT: &str = r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$";

fn default_target() -> String {
    DEFAULT_TARGET.to_owned()
}

fn default_connections() -> u32 {
    DEFAULT_CONNECTIONS
}

fn immutable() -> Rule {
    Rule::new("self == oldSelf").message("is immutable: delete this object, Chandler creates another one")
}

fn never_decreases() -> Rule {
    Rule::new("self >= oldSelf").message("must not decrease: revoked certificates would be accepted again")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unset_fields_have_defaults() {
        let spec: ClusterTunnelSpec = serde_json::from_value(json!({
            "id": "0123456789abcdef0123456789abcdef", "epoch": 1, "clusterName": "blue",
            "hubs": [{"address": "hub.example:443", "caBundle": "-----BEGIN CERTIFICATE-----"}],
        }))
        .unwrap();
        assert_eq!((spec.target.as_str(), spec.connections), ("127.0.0.1:6443", 2));
        assert_eq!((spec.endpoint, spec.proxy, spec.hubs[0].token.as_deref()), (None, None, None));
    }

    /// Each replica of the hub and the manager own their entries only if the API server merges the lists by these keys.
    #[test]
    fn lists_that_several_writers_share_are_maps() {
        let crd = serde_json::to_value(<ClusterTunnel as kube_core::CustomResourceExt>::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let rows = [
            (&schema["spec"]["properties"]["hubs"], json!(["address"])),
            (&schema["status"]["properties"]["agents"], json!(["hub", "connection"])),
            (&schema["status"]["properties"]["joins"], json!(["hub"])),
            (&schema["status"]["properties"]["conditions"], json!(["type"])),
        ];
        for (list, keys) in rows {
            assert_eq!(
                (&list["x-kubernetes-list-type"], &list["x-kubernetes-list-map-keys"]),
                (&json!("map"), &keys)
            );
        }
    }

    #[test]
    fn lists_are_limited() {
        let crd = serde_json::to_value(<ClusterTunnel as kube_core::CustomResourceExt>::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let rows =
            [("spec", "hubs", 8), ("status", "agents", 16 * MAX_AGENTS_PER_HUB), ("status", "joins", 64)];
        for (part, list, limit) in rows {
            assert_eq!(schema[part]["properties"][list]["maxItems"], limit, "{list}");
        }
    }

    #[test]
    fn identity_is_immutable_and_the_epoch_never_decreases() {
        let crd = serde_json::to_value(<ClusterTunnel as kube_core::CustomResourceExt>::crd()).unwrap();
        let spec =
            &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        for (field, rule) in
            [("id", "self == oldSelf"), ("clusterName", "self == oldSelf"), ("epoch", "self >= oldSelf")]
        {
            assert_eq!(spec[field]["x-kubernetes-validations"][0]["rule"], rule, "{field}");
        }
    }
}
