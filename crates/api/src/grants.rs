//! `chandler.dev/v1alpha1`, kind `ReferenceGrant`: allows references to a namespace from other namespaces.

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Allows objects in other namespaces to use Secrets in this namespace.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "ReferenceGrant",
    plural = "referencegrants",
    shortname = "rgrant",
    category = "chandler",
    doc = "Allows objects in other namespaces to use Secrets in this namespace.",
    namespaced,
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(name = "From", type_ = "string", json_path = ".spec.from[*].namespace"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.to[*].name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// The objects that may refer.
    #[schemars(length(min = 1, max = 64))]
    pub from: Vec<GrantedReferrer>,
    /// The objects that they may refer to.
    #[schemars(length(min = 1, max = 64))]
    pub to: Vec<GrantedTarget>,
}

/// Objects of one kind in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedReferrer {
    /// API group of the kind, for example `addons.cluster.x-k8s.io`.
    pub group: String,
    /// The kind, for example `HelmChartProxy`.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Namespace of the objects.
    #[schemars(length(min = 1))]
    pub namespace: String,
}

/// Objects in the namespace of the grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedTarget {
    /// The kind.
    pub kind: GrantedKind,
    /// Name of the object. If unset, all objects of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A kind that can be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GrantedKind {
    /// A Secret.
    Secret,
}
