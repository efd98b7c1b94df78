use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ExtensionVersion, Reference, rules};
use crate::addons::{is_default, rules::absolute_url};

/// An extension for clusters: its description, its versions, and their compatibility.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "Extension",
    plural = "extensions",
    shortname = "ext",
    category = "chandler",
    doc = "An extension for clusters: its description, its versions, and their compatibility.",
    namespaced,
    status = "ExtensionStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Newest", type_ = "string", json_path = ".status.newest"),
    printcolumn(name = "Versions", type_ = "integer", json_path = ".status.available"),
    printcolumn(name = "Lifecycle", type_ = "string", json_path = ".spec.lifecycle"),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.conditions[?(@.type=='Ready')].lastTransitionTime"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display Name", type_ = "string", priority = 1, json_path = ".spec.displayName"),
    printcolumn(name = "App Version", type_ = "string", priority = 1, json_path = ".status.appVersion"),
    printcolumn(name = "Categories", type_ = "string", priority = 1, json_path = ".spec.categories"),
    printcolumn(
        name = "Documentation",
        type_ = "string",
        priority = 1,
        json_path = ".spec.documentationURL"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::versions_or_follow_kubernetes())]
#[serde(rename_all = "camelCase")]
pub struct ExtensionSpec {
    /// Display name. If unset, the name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Short description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Logo: an https URL, or the image as a data URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    #[x_kube(validation = rules::logo())]
    pub logo: Option<String>,
    /// URL of the documentation.
    #[serde(default, rename = "documentationURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::https_url(), validation = rules::no_login())]
    pub documentation_url: Option<String>,
    /// Categories, for example `networking`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    #[schemars(length(max = 32))]
    pub categories: Vec<String>,
    /// Maintainers of the extension.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub maintainers: Vec<Maintainer>,
    /// The published versions, in any order. Removing a version does not uninstall it from clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["version".into()]))]
    pub versions: Vec<ExtensionVersion>,
    /// A repository whose tags are the Kubernetes versions that they are for. Replaces or extends `versions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_kubernetes: Option<FollowKubernetes>,
    /// What determines the version of the extension.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// What happens when Kubernetes is upgraded on the cluster.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub kubernetes_upgrade: KubernetesUpgrade,
    /// The clusters on which the extension is installed by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<DefaultInstall>,
    /// What happens to the extension when its cluster is deleted.
    #[serde(default)]
    pub on_cluster_delete: OnClusterDelete,
}

/// A maintainer of an extension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Maintainer {
    /// Name of the person or team.
    pub name: String,
    /// Email address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// A repository, or a Git repository, with tags per Kubernetes minor version: `v1.34` and `1.34.7` are for Kubernetes 1.34 only.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["repository", "catalog", "sourceRef"]),
    validation = rules::chart_or_path()
)]
#[serde(rename_all = "camelCase")]
pub struct FollowKubernetes {
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry. A new value must not contain a user name or
    /// password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = absolute_url(), validation = rules::no_login_outside_of_catalogs())]
    #[schemars(length(max = 2048))]
    pub repository: Option<String>,
    /// The ExtensionCatalog whose repository and credentials are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<Reference>,
    /// The Source whose Git tags are followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<Reference>,
    /// Folder of the package in the Source. If unset, its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// Name of the chart in the repository. Required, except with `sourceRef`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253))]
    pub chart: String,
}

/// What determines the version of an extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Lifecycle {
    /// The Kubernetes version of the cluster. The extension is upgraded together with Kubernetes.
    #[default]
    Kubernetes,
    /// The version of the platform, which the `platform` range of a version has to contain.
    Platform,
    /// Nothing else. The Kubernetes version only matters for a version with a `kubernetes` range.
    Independent,
}

/// What happens when Kubernetes is upgraded on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesUpgrade {
    /// When the extension is upgraded if no version supports both the old and the new Kubernetes version. A version that
    /// supports both is installed before the upgrade.
    #[serde(default)]
    pub when: UpgradeMoment,
    /// Whether the Kubernetes upgrade is blocked if no version supports the new Kubernetes version. If `false`, the installed
    /// version is left unchanged.
    #[serde(default = "default_true")]
    pub block: bool,
}

impl Default for KubernetesUpgrade {
    fn default() -> Self {
        Self { when: UpgradeMoment::default(), block: default_true() }
    }
}

fn default_true() -> bool {
    true
}

/// A phase of a Kubernetes upgrade.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum UpgradeMoment {
    /// Before the control plane is upgraded.
    BeforeControlPlane,
    /// After the control plane is upgraded, before the workers.
    #[default]
    AfterControlPlane,
    /// After the whole cluster is upgraded.
    AfterCluster,
}

/// The clusters on which an extension is installed by default.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct DefaultInstall {
    /// Selects Clusters by label: in the namespace of the Extension, or in all namespaces if the Extension is in the platform
    /// namespace.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub default: LabelSelector,
    /// Whether cluster owners cannot opt out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub enforced: bool,
    /// Namespace of the release on the workload cluster. If unset, the name of the Extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Parameters of the instances, which override `parametersTemplate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::any_object")]
    pub parameters: Option<Map<String, Value>>,
    /// Parameters of the instances as YAML, evaluated for each cluster as `parametersTemplate` of an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_template: Option<String>,
}

/// What happens to an extension when its cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnClusterDelete {
    /// It is not uninstalled; it disappears with the cluster.
    #[default]
    Skip,
    /// It is uninstalled first, for example to release load balancers and volumes.
    Uninstall,
}

impl OnClusterDelete {
    /// Returns the name that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "Skip",
            Self::Uninstall => "Uninstall",
        }
    }

    /// Parses a name that the API uses.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Skip, Self::Uninstall].into_iter().find(|known| known.as_str() == text)
    }
}

/// Observed state of an extension.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ExtensionStatus {
    /// Conditions of the object. `Ready` summarizes the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The newest version that can be selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// Version of the application in the newest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// Number of versions that can be selected: those that are valid and not withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
