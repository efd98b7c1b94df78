//! `SandboxClusterTemplate`: the template from which a `ClusterClass` creates a `SandboxCluster`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::TemplateMetadata;
use super::sandbox_cluster::SandboxClusterSpec;

/// Template of a `SandboxCluster`.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxClusterTemplate",
    namespaced,
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1")
)]
pub struct SandboxClusterTemplateSpec {
    pub template: SandboxClusterTemplateResource,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxClusterTemplateResource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    #[serde(default)]
    pub spec: SandboxClusterSpec,
}
