use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::addons::is_default;

/// Where a referenced object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// In the namespace of the object that refers to it.
    #[default]
    Namespace,
    /// In the one namespace that the operator of the platform keeps for all.
    Platform,
}

/// Names an object of a known kind.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct Reference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Where the object is: beside this one, or in the namespace of the platform.
    #[serde(default)]
    pub scope: Scope,
}

/// Names an extension.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ExtensionReference {
    /// Name of the Extension; with `catalog`, name of the package in that catalog.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Name of the ExtensionCatalog to look in. Unset: an Extension object is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub catalog: Option<String>,
    /// Where the Extension or the catalog is: beside this object, or in the namespace of the platform.
    #[serde(default)]
    pub scope: Scope,
}

/// Names a Secret in the namespace of the object that refers to it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretName {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Names a key of a Secret or ConfigMap in the namespace of the object that refers to it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct KeyReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Whether the object or the key may be missing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}
