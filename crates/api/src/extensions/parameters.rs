use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{KeyReference, rules};
use crate::addons::is_default;

/// Parameters from another object.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["secret", "configMap", "object"])
)]
#[serde(rename_all = "camelCase")]
pub struct ParametersFrom {
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyReference>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyReference>,
    /// A field of any object, read with the permissions of `spec.serviceAccountName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectField>,
    /// The parameter to set, for example `auth.users`. If unset, the content is YAML with parameters by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub parameter: Option<String>,
}

/// A field of an object on the management cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ObjectField {
    /// API group and version of the object.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Kind of the object.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the object. If unset, the namespace of the instance. Ignored for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The field, as a JSON pointer, for example `/spec/sshKeys`.
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^(/[^/]+)+$"))]
    pub path: String,
    /// Whether the object or the field may be missing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}
