//! `SandboxControlPlaneTemplate`: the template from which a `ClusterClass` creates a `SandboxControlPlane`. The version
//! comes from the topology.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::TemplateMetadata;
use super::sandbox_control_plane::one;

/// Template of a `SandboxControlPlane`.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "controlplane.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxControlPlaneTemplate",
    namespaced,
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1")
)]
pub struct SandboxControlPlaneTemplateSpec {
    pub template: SandboxControlPlaneTemplateResource,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxControlPlaneTemplateResource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    pub spec: SandboxControlPlaneTemplateResourceSpec,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxControlPlaneTemplateResourceSpec {
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    pub nodes: u32,
}
