//! `SandboxBootstrap`: the bootstrap configuration that Cluster API requires. It has no content.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The bootstrap configuration of a worker. It is empty, because workers of the sandbox need no bootstrap data.
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
    /// The name of the Secret with the bootstrap data. No such Secret exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapInitialization {
    #[serde(default)]
    pub data_secret_created: bool,
}
