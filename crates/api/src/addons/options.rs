use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{is_false, rules};

/// Options of Helm operations.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct HelmOptions {
    /// Do not run the hooks of the chart.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_hooks: bool,
    /// Wait until the objects of the release are ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// With `wait`, also wait until Jobs are completed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait_for_jobs: bool,
    /// Kept for compatibility; has no effect. A packaged chart contains its dependencies.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dependency_update: bool,
    /// Time limit of one Helm operation, as a Go duration.
    #[serde(default)]
    #[x_kube(validation = rules::go_duration())]
    pub timeout: Timeout,
    /// Do not install the CRDs in the `crds` directory of the chart.
    #[serde(default, rename = "skipCRDs", skip_serializing_if = "is_false")]
    pub skip_crds: bool,
    /// Render the notes of subcharts. The field is called `options` for compatibility.
    #[serde(default, rename = "options", skip_serializing_if = "is_false")]
    pub sub_notes: bool,
    /// Kept for compatibility; has no effect. The API server always validates.
    #[serde(default, rename = "disableOpenAPIValidation", skip_serializing_if = "is_false")]
    pub disable_open_api_validation: bool,
    /// On failure, uninstall a new release or roll back an upgrade. Implies `wait`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub atomic: bool,
    /// Options of an installation.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub install: HelmInstallOptions,
    /// Options of an upgrade.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub upgrade: HelmUpgradeOptions,
    /// Options of an uninstallation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<HelmUninstallOptions>,
    /// Kept for compatibility; has no effect. Clients are always cached.
    #[serde(default)]
    pub enable_client_cache: bool,
    /// Adopt objects that belong to another release or to no release.
    #[serde(default, skip_serializing_if = "is_false")]
    pub take_ownership: bool,
}

/// A duration in Go's format, such as `10m` or `1h30m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Timeout(pub String);

impl Default for Timeout {
    fn default() -> Self {
        Self("10m".to_owned())
    }
}

/// Options of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmInstallOptions {
    /// Create the namespace of the release if it does not exist.
    #[serde(default = "default_true")]
    pub create_namespace: bool,
    /// Kept for compatibility; has no effect. CRDs in templates are treated like other objects.
    #[serde(default, rename = "includeCRDs", skip_serializing_if = "is_false")]
    pub include_crds: bool,
}

impl Default for HelmInstallOptions {
    fn default() -> Self {
        Self { create_namespace: default_true(), include_crds: false }
    }
}

/// Options of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmUpgradeOptions {
    /// Resolve conflicts with other field managers, and replace objects that cannot be changed in place.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Start from the default values of the chart.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reset_values: bool,
    /// Reuse the values of the last revision and merge the given values over them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reuse_values: bool,
    /// Start from the default values of the chart, then merge the values of the last revision, then the given values.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reset_then_reuse_values: bool,
    /// Kept for compatibility; has no effect.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recreate: bool,
    /// Number of revisions that Helm keeps. 0 or less keeps all.
    #[serde(default = "default_max_history")]
    pub max_history: i64,
    /// Delete objects that a failed upgrade created.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cleanup_on_fail: bool,
}

impl Default for HelmUpgradeOptions {
    fn default() -> Self {
        Self {
            force: false,
            reset_values: false,
            reuse_values: false,
            reset_then_reuse_values: false,
            recreate: false,
            max_history: default_max_history(),
            cleanup_on_fail: false,
        }
    }
}

/// Options of an uninstallation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmUninstallOptions {
    /// Keep the history of the release on the workload cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep_history: bool,
    /// A description that Helm stores with the uninstallation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

fn default_true() -> bool {
    true
}

fn default_max_history() -> i64 {
    10
}
