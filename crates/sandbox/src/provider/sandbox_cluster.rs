//! `SandboxCluster`: the infrastructure of a cluster, which is a port on this machine.

use std::net::IpAddr;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use crate::plane::Network;

/// The infrastructure of a cluster on the machine of the sandbox.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxCluster",
    namespaced,
    status = "SandboxClusterStatus",
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
    ),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.controlPlaneEndpoint.port"),
    printcolumn(name = "Provisioned", type_ = "boolean", json_path = ".status.initialization.provisioned")
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClusterSpec {
    /// The address of the API server. The sandbox chooses one if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// The region of the cluster. The sandbox ignores it; values of add-ons may depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The network in which the control plane runs. Without it, the control plane is on the network of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<SiteNetwork>,
    /// The host of the endpoint. Nothing has to resolve it: it may be known only behind a proxy. Without it, the host is the
    /// address of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
}

impl SandboxClusterSpec {
    /// Returns the network of the control plane.
    pub(super) fn plane_network(&self) -> Network {
        let mut network = Network { host_name: self.host_name.clone(), ..Network::default() };
        if let Some(site) = &self.network {
            network.namespace = Some(site.namespace.clone());
            network.address = site.address;
        }
        network
    }
}

/// A network namespace that exists already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteNetwork {
    /// The name of the namespace, as in `ip netns list`.
    pub namespace: String,
    /// The address in the namespace on which the API server listens, on port 6443.
    #[schemars(with = "String")]
    pub address: IpAddr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClusterStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitialization>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterInitialization {
    #[serde(default)]
    pub provisioned: bool,
}
