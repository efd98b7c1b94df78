//! `SandboxControlPlane`: a control plane as local processes.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;

/// A real Kubernetes control plane, with Nodes that run no containers but report their Pods as Ready.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "columns of the same type")]
#[kube(
    group = "controlplane.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxControlPlane",
    namespaced,
    status = "SandboxControlPlaneStatus",
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".spec.nodes"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version")
)]
pub struct SandboxControlPlaneSpec {
    /// The Kubernetes version, such as v1.34.4.
    pub version: String,
    /// The number of Nodes of the cluster.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    pub nodes: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxControlPlaneStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ControlPlaneInitialization>,
    /// The running version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Always true, because the control plane has no Machines.
    #[serde(default)]
    pub external_managed_control_plane: bool,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneInitialization {
    #[serde(default)]
    pub control_plane_initialized: bool,
}

pub(super) fn one() -> u32 {
    1
}
