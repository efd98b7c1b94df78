use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{KeyReference, rules};
use crate::addons::is_default;

/// Parameters from other objects. Names, namespaces, keys and paths, and the values of labels, may be Go templates over the same
/// data as `parametersTemplate`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["secret", "configMap", "object", "objects"]),
    validation = rules::objects_require_template()
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
    /// All objects that a selector matches, read with the permissions of `spec.serviceAccountName`. Without one, Secrets and
    /// ConfigMaps of the same namespace are read with those of Chandler, which has to be allowed to list them there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectList>,
    /// The parameter to set, for example `auth.users`. If unset, the content is YAML with parameters by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub parameter: Option<String>,
    /// YAML that replaces the content. Go templates in it can refer to `.Content`, the text of the key or the value of the field,
    /// or to `.Objects`, and to the same data as `parametersTemplate`. `data` of a Secret in `.Objects` is decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16_384))]
    pub template: Option<String>,
}

/// The objects of a kind on the management cluster that a selector matches, sorted by name.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ObjectList {
    /// API group and version of the objects.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Kind of the objects.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace of the objects. If unset, the namespace of the instance. Ignored for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// Selects the objects by label.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: LabelSelector,
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
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// The field, as a JSON pointer, for example `/spec/sshKeys`.
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^(/[^/]+)+$"))]
    pub path: String,
    /// Whether the object or the field may be missing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}
