use kube_derive::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{OnClusterDelete, PackageSource, rules};
use crate::{
    addons::{Timeout, is_default, rules::go_duration},
    status::ReleaseStatus,
};

/// One extension on one Cluster. Created by an ExtensionInstance.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "AddonRelease",
    plural = "addonreleases",
    shortname = "ar",
    category = "chandler",
    doc = "One extension on one Cluster. Created by an ExtensionInstance.",
    namespaced,
    status = "ReleaseStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "Extension", type_ = "string", json_path = ".spec.extension"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Commit", type_ = "string", json_path = ".spec.pinned.revision"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.status"),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.revision"),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.conditions[?(@.type=='Ready')].lastTransitionTime"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::values_or_values_secret(),
    validation = rules::pinned_with_source_ref()
)]
#[serde(rename_all = "camelCase")]
pub struct AddonReleaseSpec {
    /// Name of the Cluster in the same namespace. Immutable.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::immutable())]
    pub cluster: String,
    /// Name and namespace of the release on the workload cluster. Immutable.
    #[x_kube(validation = rules::immutable())]
    pub release: ReleaseIdentity,
    /// Name of the extension, or `CATALOG/PACKAGE` for a package of a catalog. If unset, the package has no extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 520))]
    pub extension: Option<String>,
    /// Version of the extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub version: Option<String>,
    /// The package.
    pub source: PackageSource,
    /// The package that was made of the folder in `source`. Set exactly if `source` has a `sourceRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedPackage>,
    /// Values as YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<String>,
    /// A Secret with the values, for values that contain data of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values_secret: Option<ValuesSecret>,
    /// Names of the AddonReleases that have to be ready before this one is installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    pub depends_on: Vec<String>,
    /// What happens to the release when its cluster is deleted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_cluster_delete: OnClusterDelete,
    /// Options of operations.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub options: ReleaseOptions,
}

/// A release on the workload cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct ReleaseIdentity {
    /// Name of the release.
    #[schemars(length(min = 1, max = 53))]
    pub name: String,
    /// Namespace of the release.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
}

/// A package that was made of a folder of a Source.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct PinnedPackage {
    /// The revision of the Source at which the package was made. Later revisions that do not change the package are not
    /// recorded.
    #[schemars(length(min = 1, max = 256))]
    pub revision: String,
    /// `sha256:…` of the package.
    #[schemars(extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
    pub digest: String,
    /// OCI artifact type of the package, which selects the package tool. Unset for Helm charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub format: Option<String>,
    /// Whether the values were used to make the package, so that they are not values of the release. Set for kustomizations.
    #[serde(default, skip_serializing_if = "is_default")]
    pub includes_values: bool,
}

/// Values in a Secret.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct ValuesSecret {
    /// Name of the Secret in the same namespace. The values are at key `values.yaml`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `sha256:…` of the values, so that a change of the values changes the spec.
    #[schemars(extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
    pub digest: String,
}

/// Options of operations, for any package tool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ReleaseOptions {
    /// Wait until the objects of the release are ready.
    #[serde(default = "default_true")]
    pub wait: bool,
    /// With `wait`, also wait until Jobs are completed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait_for_jobs: bool,
    /// Time limit of one operation, as a Go duration.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub timeout: Timeout,
    /// Create the namespace of the release if it does not exist.
    #[serde(default = "default_true")]
    pub create_namespace: bool,
    /// On failure, uninstall a new release or roll back an upgrade. Implies `wait`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub atomic: bool,
    /// Adopt objects that belong to another release or to no release.
    #[serde(default, skip_serializing_if = "is_default")]
    pub take_ownership: bool,
    /// On upgrades, resolve conflicts with other field managers, and replace objects that cannot be changed in place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub force: bool,
    /// Do not run the hooks of the package.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disable_hooks: bool,
    /// Do not install the CRDs that the package contains apart from its other objects.
    #[serde(default, rename = "skipCRDs", skip_serializing_if = "is_default")]
    pub skip_crds: bool,
    /// Number of revisions that are kept. 0 keeps all.
    #[serde(default = "default_max_history")]
    #[schemars(range(min = 0))]
    pub max_history: u32,
}

impl Default for ReleaseOptions {
    fn default() -> Self {
        Self {
            wait: default_true(),
            wait_for_jobs: false,
            timeout: Timeout::default(),
            create_namespace: default_true(),
            atomic: false,
            take_ownership: false,
            force: false,
            disable_hooks: false,
            skip_crds: false,
            max_history: default_max_history(),
        }
    }
}

fn default_true() -> bool {
    true
}

fn default_max_history() -> u32 {
    10
}
