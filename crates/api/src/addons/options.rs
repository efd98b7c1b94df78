use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{is_false, rules};

/// Options of the Helm operations.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct HelmOptions {
    /// Do not run the chart's hooks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_hooks: bool,
    /// Wait until the release's objects are ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// With `wait`: also until Jobs have completed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait_for_jobs: bool,
    /// Kept for compatibility: a packaged chart brings its dependencies along.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dependency_update: bool,
    /// Time limit of one Helm operation, as a Go duration.
    #[serde(default)]
    #[x_kube(validation = rules::go_duration())]
    pub timeout: Timeout,
    /// Do not install the custom resource definitions in the chart's `crds` folder.
    #[serde(default, rename = "skipCRDs", skip_serializing_if = "is_false")]
    pub skip_crds: bool,
    /// Render the notes of subcharts. The field is called `options` for compatibility.
    #[serde(default, rename = "options", skip_serializing_if = "is_false")]
    pub sub_notes: bool,
    /// Kept for compatibility: validation is always the API server's.
    #[serde(default, rename = "disableOpenAPIValidation", skip_serializing_if = "is_false")]
    pub disable_open_api_validation: bool,
    /// On failure, uninstall a new release or roll an upgrade back. Implies `wait`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub atomic: bool,
    /// Options of the installation.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub install: HelmInstallOptions,
    /// Options of an upgrade.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub upgrade: HelmUpgradeOptions,
    /// Options of the removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<HelmUninstallOptions>,
    /// Kept for compatibility: clients are always cached.
    #[serde(default)]
    pub enable_client_cache: bool,
    /// Take over objects that belong to another release or to none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub take_ownership: bool,
}

/// A time limit as written: a Go duration such as `10m` or `1h30m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Timeout(pub String);

impl Default for Timeout {
    fn default() -> Self {
        Self("10m".to_owned())
    }
}

/// Options of the installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmInstallOptions {
    /// Create the release's namespace if it is absent.
    #[serde(default = "yes")]
    pub create_namespace: bool,
    /// Kept for compatibility: custom resource definitions in templates are objects like any other.
    #[serde(default, rename = "includeCRDs", skip_serializing_if = "is_false")]
    pub include_crds: bool,
}

impl Default for HelmInstallOptions {
    fn default() -> Self {
        Self { create_namespace: yes(), include_crds: false }
    }
}

/// Options of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmUpgradeOptions {
    /// Overcome what stands in the way: other field managers, or objects that cannot be changed in place.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Start from the chart's own values.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reset_values: bool,
    /// Keep the last revision's values and merge the given ones on top.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reuse_values: bool,
    /// Start from the chart's own values, then the last revision's, then the given ones.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reset_then_reuse_values: bool,
    /// Kept for compatibility.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recreate: bool,
    /// How many revisions Helm keeps. 0 or less keeps all.
    #[serde(default = "ten")]
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
            max_history: ten(),
            cleanup_on_fail: false,
        }
    }
}

/// Options of the removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmUninstallOptions {
    /// Keep the release's history on the workload cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep_history: bool,
    /// A note that Helm keeps with the removal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

fn yes() -> bool {
    true
}

fn ten() -> i64 {
    10
}
