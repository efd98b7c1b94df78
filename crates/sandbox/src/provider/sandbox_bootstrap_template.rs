//! `SandboxBootstrapTemplate`: the template from which Cluster API creates the `SandboxBootstrap` of a Machine.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::TemplateMetadata;
use super::sandbox_bootstrap::SandboxBootstrapSpec;

/// Template of a `SandboxBootstrap`.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxBootstrapTemplate",
    namespaced,
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1")
)]
pub struct SandboxBootstrapTemplateSpec {
    pub template: SandboxBootstrapTemplateResource,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxBootstrapTemplateResource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    #[serde(default)]
    pub spec: SandboxBootstrapSpec,
}
