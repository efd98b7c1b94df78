//! `SandboxMachineTemplate`: the template from which Cluster API creates the `SandboxMachine` of a Machine.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::TemplateMetadata;
use super::sandbox_machine::SandboxMachineSpec;

/// Template of a `SandboxMachine`.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxMachineTemplate",
    namespaced,
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1")
)]
pub struct SandboxMachineTemplateSpec {
    pub template: SandboxMachineTemplateResource,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxMachineTemplateResource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    #[serde(default)]
    pub spec: SandboxMachineSpec,
}
