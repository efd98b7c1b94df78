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
    /// Version of the application in the package, for display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// The range of supported Kubernetes versions. If unset, the range in the package, or all versions if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub kubernetes: Option<String>,
    /// The range of supported platform versions. Only used with `lifecycle: Platform`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub platform: Option<String>,
    /// The package.
    #[x_kube(validation = rules::package_without_login())]
    pub source: PackageSource,
    /// Schema and defaults of the parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<VersionParameters>,
    /// The extensions that this version requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["extension".into()]))]
    pub dependencies: Vec<Dependency>,
    /// The channel of the version. If unset, it belongs to every channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub channel: Option<String>,
    /// Only selected if no other version fits. Installed releases are left unchanged.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deprecated: bool,
    /// Never selected. Installed releases are left unchanged and reported.
    #[serde(default, skip_serializing_if = "is_default")]
    pub withdrawn: bool,
}

/// Schema and defaults of the parameters of a version.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct VersionParameters {
    /// JSON schema of the parameters. If unset, the schema in the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::any_object")]
    pub schema: Option<Map<String, Value>>,
    /// Default parameters, which instances can override.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::any_object")]
    pub defaults: Option<Map<String, Value>>,
    /// Default parameters as YAML, evaluated for each cluster: Go templates in it can refer to the same data as
    /// `parametersTemplate` of an instance. They override `defaults`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults_template: Option<String>,
}

/// An extension that a version requires.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct Dependency {
    /// Name of the required Extension. It is searched in the namespace of the requiring Extension, then in the platform
    /// namespace.
    #[schemars(length(min = 1, max = 253))]
    pub extension: String,
    /// The range of acceptable versions. If unset, any version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub range: Option<String>,
    /// Whether the extension may be missing. If it is installed, `range` still applies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}
