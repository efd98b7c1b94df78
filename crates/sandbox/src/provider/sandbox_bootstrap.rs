//! `SandboxBootstrap`: how a worker joins, which is by itself; the Cluster API wants it said.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// There is nothing to say about how a worker of the sandbox joins.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxBootstrap",
    namespaced,
    status = "SandboxBootstrapStatus",
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1")
)]
pub struct SandboxBootstrapSpec {}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxBootstrapStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<BootstrapInitialization>,
    /// Names a Secret that a real machine would start with; there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapInitialization {
    #[serde(default)]
    pub data_secret_created: bool,
}
