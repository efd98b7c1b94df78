use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{PackageSource, rules};
use crate::addons::is_default;

/// One published version of an extension.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ExtensionVersion {
    /// The version, unique in the list.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = rules::version())]
    pub version: String,
    /// Version of the application in the package, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// The Kubernetes versions it runs on, as a range. Unset: those that the package itself states, else all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub kubernetes: Option<String>,
    /// The versions of the platform it belongs to, as a range. Looked at with `lifecycle: Platform`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub platform: Option<String>,
    /// The package.
    pub source: PackageSource,
    /// What can be set, and what is set unless an instance says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<VersionParameters>,
    /// The extensions it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["extension".into()]))]
    pub dependencies: Vec<Dependency>,
    /// The channel it is published in. Unset: it belongs to every channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub channel: Option<String>,
    /// Chosen only where no other version fits. What runs stays.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deprecated: bool,
    /// Never chosen any more. What runs stays, and is reported.
    #[serde(default, skip_serializing_if = "is_default")]
    pub withdrawn: bool,
}

/// What can be set in a version.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct VersionParameters {
    /// JSON schema of the parameters. Unset: the one in the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::any_object")]
    pub schema: Option<Map<String, Value>>,
    /// Parameters that are set unless an instance says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::any_object")]
    pub defaults: Option<Map<String, Value>>,
}

/// An extension that another one needs.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct Dependency {
    /// Name of the needed Extension, looked for beside the one that needs it, then in the platform.
    #[schemars(length(min = 1, max = 253))]
    pub extension: String,
    /// The versions that serve, as a range. Unset: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub range: Option<String>,
    /// Whether it may be missing. If it is there, the range holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}
