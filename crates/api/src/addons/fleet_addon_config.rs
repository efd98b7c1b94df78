use k8s_openapi::{
    api::core::v1::{EnvVar, ObjectReference, Toleration},
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::extensions::rules;

/// The name of the only FleetAddonConfig.
pub const FLEET_ADDON_CONFIG_NAME: &str = "fleet-addon-config";
/// Namespace of Fleet's agent on workload clusters if the config has none.
pub const DEFAULT_AGENT_NAMESPACE: &str = "fleet-addon-agent";

/// Configures how Clusters are handed over to Fleet. If the object does not exist, all Clusters are; if it exists, a
/// section that is not set is off.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "FleetAddonConfig",
    plural = "fleetaddonconfigs",
    shortname = "fac",
    category = "cluster-api",
    doc = "Configures how Clusters are handed over to Fleet.",
    status = "FleetAddonConfigStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
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
pub struct FleetAddonConfigSpec {
    /// Creates a Fleet `ClusterGroup` for every ClusterClass, with the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_class: Option<FleetClassConfig>,
    /// Creates a Fleet `Cluster` for every Cluster whose control plane is initialized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<FleetClusterConfig>,
    /// Configuration of Fleet itself. Chandler does not act upon it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<FleetServerConfig>,
    /// Installation of Fleet. Chandler does not act upon it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<FleetInstall>,
}

impl FleetAddonConfigSpec {
    /// Returns the config that applies if the object does not exist.
    pub fn without_object() -> Self {
        Self {
            cluster_class: Some(FleetClassConfig::defaults()),
            cluster: Some(FleetClusterConfig::defaults()),
            config: Some(FleetServerConfig::defaults()),
            install: None,
        }
    }
}

/// How a Fleet `ClusterGroup` is created for a ClusterClass.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct FleetClassConfig {
    /// Whether the ClusterClass owns the group, so that both are deleted together. If unset, it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_owner_references: Option<bool>,
    /// Whether the group is kept in sync. If unset, it is only created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_resource: Option<bool>,
}

impl FleetClassConfig {
    fn defaults() -> Self {
        Self { set_owner_references: Some(true), patch_resource: Some(true) }
    }
}

/// How a Fleet `Cluster` is created for a Cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct FleetClusterConfig {
    /// Whether a Cluster whose class is in another namespace gets a `ClusterGroup` for the class in its own namespace, and a
    /// `BundleNamespaceMapping` in the namespace of the class. If unset, it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_class_group: Option<bool>,
    /// Whether the Fleet objects are kept in sync. If unset, they are only created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_resource: Option<bool>,
    /// Whether the Cluster owns the Fleet `Cluster`, so that both are deleted together. If unset, it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_owner_references: Option<bool>,
    /// Name of the Fleet `Cluster`. If unset, the name of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naming: Option<FleetNaming>,
    /// Namespace of Fleet's agent on the workload cluster. If unset, `fleet-addon-agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_namespace: Option<String>,
    /// Tolerations of Fleet's agent. If unset, the taints of Nodes that are not ready or not initialized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_tolerations: Option<Vec<Toleration>>,
    /// Whether Fleet's agent uses the network of its Node, so that it does not depend on a CNI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Environment variables of Fleet's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_env_vars: Option<Vec<EnvVar>>,
    /// Selects namespaces by label. Only Clusters in them are handed over. An empty selector selects all namespaces.
    pub namespace_selector: LabelSelector,
    /// Selects Clusters by label. Only they are handed over. An empty selector selects all Clusters.
    pub selector: LabelSelector,
}

impl FleetClusterConfig {
    fn defaults() -> Self {
        Self {
            apply_class_group: Some(true),
            patch_resource: Some(true),
            set_owner_references: Some(true),
            host_network: Some(true),
            agent_namespace: Some(DEFAULT_AGENT_NAMESPACE.to_owned()),
            ..Self::default()
        }
    }
}

/// How the name of a Fleet `Cluster` is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetNaming {
    /// Text before the name of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Text after the name of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
}

/// Configuration of Fleet itself.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct FleetServerConfig {
    /// The API server that Fleet's agents connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<FleetServer>,
    /// Experimental features of Fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_gates: Option<FleetFeatureGates>,
    /// Whether Fleet installs an agent on the management cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_local_cluster: Option<bool>,
}

impl FleetServerConfig {
    fn defaults() -> Self {
        let gates = FleetFeatureGates {
            experimental_oci_storage: true,
            experimental_helm_ops: true,
            config_map: None,
        };
        Self { feature_gates: Some(gates), ..Self::default() }
    }
}

/// The API server that Fleet's agents connect to.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["inferLocal", "custom"]))]
#[serde(rename_all = "camelCase")]
pub struct FleetServer {
    /// Whether it is the API server of the management cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infer_local: Option<bool>,
    /// Another address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<FleetServerAddress>,
}

/// The address of an API server and its certificate authority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetServerAddress {
    /// The ConfigMap with the certificate authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_ca_config_ref: Option<ObjectReference>,
    /// The URL of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_url: Option<String>,
}

/// Experimental features of Fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetFeatureGates {
    /// Stores bundles in an OCI registry.
    pub experimental_oci_storage: bool,
    /// Enables Fleet's kind `HelmOp`.
    pub experimental_helm_ops: bool,
    /// The ConfigMap that the features are written to, instead of Fleet's chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<FleetFeaturesConfigMap>,
}

/// A reference to the ConfigMap of Fleet's features.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetFeaturesConfigMap {
    /// The ConfigMap.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<ObjectReference>,
}

/// Installation of Fleet.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["followLatest", "version"]))]
#[serde(rename_all = "camelCase")]
pub struct FleetInstall {
    /// Whether the newest version is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_latest: Option<bool>,
    /// The version to install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Observed state of the hand-over to Fleet.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct FleetAddonConfigStatus {
    /// The version of Fleet that the add-on provider for Fleet installed. Chandler does not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_version: Option<String>,
    /// Conditions of the object. `Ready` says whether Clusters are handed over; `Supported` is `False` if fields are set that
    /// Chandler does not act upon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn without_the_object_everything_is_handed_over() {
        let defaults = serde_json::to_value(FleetAddonConfigSpec::without_object()).unwrap();
        assert_eq!(
            defaults,
            json!({
                "clusterClass": {"setOwnerReferences": true, "patchResource": true},
                "cluster": {
                    "applyClassGroup": true, "patchResource": true, "setOwnerReferences": true, "hostNetwork": true,
                    "agentNamespace": "fleet-addon-agent", "namespaceSelector": {}, "selector": {},
                },
                "config": {"featureGates": {"experimentalOciStorage": true, "experimentalHelmOps": true}},
            })
        );
    }

    #[test]
    fn every_field_of_the_add_on_provider_for_fleet_round_trips() {
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "ca", "namespace": "fleet"});
        let features = |server: Value, install: Value| {
            json!({
                "clusterClass": {"setOwnerReferences": false, "patchResource": false},
                "cluster": {
                    "applyClassGroup": false, "patchResource": true, "setOwnerReferences": true,
                    "naming": {"prefix": "capi-", "suffix": "-fleet"}, "agentNamespace": "agents",
                    "agentTolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 6}],
                    "hostNetwork": false, "agentEnvVars": [{"name": "HTTP_PROXY", "value": "http://proxy"}],
                    "namespaceSelector": {"matchLabels": {"import": "true"}},
                    "selector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["one"]}]},
                },
                "config": {
                    "server": server, "bootstrapLocalCluster": true,
                    "featureGates": {
                        "experimentalOciStorage": false, "experimentalHelmOps": true, "configMap": {"ref": reference},
                    },
                },
                "install": install,
            })
        };
        let custom = json!({"custom": {"apiServerUrl": "https://a", "apiServerCaConfigRef": reference}});
        let rows = [
            (json!({"inferLocal": true}), json!({"followLatest": true})),
            (custom, json!({"version": "0.12.0"})),
        ];
        for (server, install) in rows {
            let spec = features(server, install);
            let parsed: FleetAddonConfigSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(serde_json::to_value(parsed).unwrap(), spec);
        }
    }
}
