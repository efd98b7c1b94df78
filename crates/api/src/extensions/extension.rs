use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExtensionVersion, Reference, rules};
use crate::addons::{is_default, rules::absolute_url};

/// An extension of clusters: what it is, its versions, and what they fit.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "Extension",
    plural = "extensions",
    shortname = "ext",
    category = "chandler",
    doc = "An extension of clusters: what it is, its versions, and what they fit.",
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
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::some_versions())]
#[serde(rename_all = "camelCase")]
pub struct ExtensionSpec {
    /// Name for people. Unset: the object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What it does, in a sentence or two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Logo: an https address, or the image itself as a data URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    #[x_kube(validation = rules::logo())]
    pub logo: Option<String>,
    /// Where its documentation is.
    #[serde(default, rename = "documentationURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::https_url())]
    pub documentation_url: Option<String>,
    /// What it is found under, for example `networking`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    #[schemars(length(max = 32))]
    pub categories: Vec<String>,
    /// Whom to ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub maintainers: Vec<Maintainer>,
    /// The published versions, in any order. Removing one never removes what runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["version".into()]))]
    pub versions: Vec<ExtensionVersion>,
    /// A repository whose tags are the Kubernetes versions they are made for: instead of the list, or besides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_kubernetes: Option<FollowKubernetes>,
    /// What the life of the extension is tied to.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// What happens when the cluster's Kubernetes is upgraded.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub kubernetes_upgrade: KubernetesUpgrade,
    /// Clusters that get it without anybody asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<DefaultInstall>,
    /// What happens to it when its cluster is deleted.
    #[serde(default)]
    pub on_cluster_delete: OnClusterDelete,
}

/// Whom to ask about an extension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Maintainer {
    /// Name of the person or team.
    pub name: String,
    /// Where to write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// A repository with one tag or more per Kubernetes minor: `v1.34` or `1.34.7` is for Kubernetes 1.34 and no other.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["repository", "catalog"]))]
pub struct FollowKubernetes {
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = absolute_url())]
    #[schemars(length(max = 2048))]
    pub repository: Option<String>,
    /// The ExtensionCatalog whose repository and credentials are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<Reference>,
    /// Name of the chart in the repository.
    #[schemars(length(min = 1, max = 253))]
    pub chart: String,
}

/// What the life of an extension is tied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Lifecycle {
    /// The cluster's Kubernetes version: its versions follow upgrades of Kubernetes.
    #[default]
    Kubernetes,
    /// The version of the platform: the `platform` range of a version is held against it.
    Platform,
    /// Its own: Kubernetes matters only to a version that states a range.
    Independent,
}

/// What happens when the cluster's Kubernetes is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesUpgrade {
    /// When to move if no version fits both the old and the new Kubernetes. One that fits both is there before.
    #[serde(default)]
    pub when: UpgradeMoment,
    /// Whether the upgrade has to wait if no version fits the new Kubernetes. If not, what runs stays as it is.
    #[serde(default = "yes")]
    pub block: bool,
}

impl Default for KubernetesUpgrade {
    fn default() -> Self {
        Self { when: UpgradeMoment::default(), block: yes() }
    }
}

fn yes() -> bool {
    true
}

/// A moment of a Kubernetes upgrade.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum UpgradeMoment {
    /// Before the control plane is upgraded.
    BeforeControlPlane,
    /// When the control plane has the new version, before the workers.
    #[default]
    AfterControlPlane,
    /// When all of the cluster has the new version.
    AfterCluster,
}

/// Clusters that get an extension without anybody asking.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct DefaultInstall {
    /// Selects Clusters by label: those of the Extension's namespace, or all if it belongs to the platform.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub default: LabelSelector,
    /// Whether owners of a cluster cannot opt out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub enforced: bool,
    /// Namespace on the workload cluster. Unset: the Extension's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// What happens to an extension when its cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnClusterDelete {
    /// It goes with the cluster.
    #[default]
    Skip,
    /// It is uninstalled first, for example to give back load balancers and volumes.
    Uninstall,
}

/// What Chandler saw of an extension.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ExtensionStatus {
    /// `Ready` sums up the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The newest version that can be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// How many versions can be chosen: those that are not withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    /// The generation that the rest of the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
