use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::addons::is_default;

/// The namespace of a referenced object.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Scope {
    /// The namespace of the referring object.
    #[default]
    Namespace,
    /// The platform namespace, which the operator of the platform manages for all namespaces.
    Platform,
}

/// A reference to an object of a known kind.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct Reference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether the object is in the same namespace or in the platform namespace.
    #[serde(default)]
    pub scope: Scope,
}

/// A reference to an extension.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ExtensionReference {
    /// Name of the Extension. With `catalog`, name of the package in that catalog.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Name of the ExtensionCatalog with the package. If unset, `name` refers to an Extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub catalog: Option<String>,
    /// Whether the Extension or the catalog is in the same namespace or in the platform namespace.
    #[serde(default)]
    pub scope: Scope,
}

/// A reference to a Secret in the namespace of the referring object.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretName {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A reference to a key of a Secret or ConfigMap in the namespace of the referring object.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct KeyReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the data of the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Whether the object or the key may be missing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}
