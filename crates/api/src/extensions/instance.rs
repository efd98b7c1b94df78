use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ExtensionReference, PackageSource, ParametersFrom, ReleaseOptions, rules};
use crate::status::PlacementStatus;

/// Wants an extension on clusters.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "ExtensionInstance",
    plural = "extensioninstances",
    shortname = "exti",
    category = "chandler",
    doc = "Wants an extension on clusters.",
    namespaced,
    status = "InstanceStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
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
    printcolumn(name = "Extension", type_ = "string", json_path = ".spec.extension.name"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.versions"),
    printcolumn(name = "Clusters", type_ = "string", json_path = ".status.readyClusters"),
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
    validation = rules::one_of(&["extension", "source"]),
    validation = rules::version_of_extension(),
    validation = rules::account_for_objects()
)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionInstanceSpec {
    /// The extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<ExtensionReference>,
    /// A package that no Extension describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PackageSource>,
    /// The versions of the extension that serve, as a range. Unset: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub version: Option<String>,
    /// The channel to choose from. Unset: `stable`. Versions without a channel belong to every channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub channel: Option<String>,
    /// The clusters that get it.
    pub clusters: Clusters,
    /// What happens with extensions that it needs and nobody asked for.
    #[serde(default)]
    pub dependencies: DependencyPolicy,
    /// Name and namespace on the workload cluster.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub release: ReleasePlace,
    /// Parameters. They win over those of `parametersTemplate`, which win over `parametersFrom` and the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::any_object")]
    pub parameters: Option<Map<String, Value>>,
    /// Parameters as YAML with Go templates over `.Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_template: Option<String>,
    /// Parameters that are kept elsewhere. Later ones win.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub parameters_from: Vec<ParametersFrom>,
    /// The ServiceAccount of this namespace with whose rights `parametersFrom[].object` is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Options of the operations.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub options: ReleaseOptions,
}

/// Clusters: one by name, or those that a selector matches.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["name", "selector"]))]
pub struct Clusters {
    /// Name of a Cluster in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Selects Clusters in the same namespace by label. Empty selects every Cluster of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
}

/// What happens with extensions that are needed and that nobody asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DependencyPolicy {
    /// They are installed too, and go when nobody needs them any more.
    #[default]
    Install,
    /// An instance of their own has to ask for them; until then nothing is installed.
    Require,
}

/// Where a release goes on the workload cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct ReleasePlace {
    /// Name of the release. Unset: the name of the extension, or of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub name: Option<String>,
    /// Namespace of the release. Unset: the same as its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// What Chandler saw of an instance and did about it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// What every placement reports.
    #[serde(flatten)]
    pub placement: PlacementStatus,
    /// The versions on all clusters, for example `1.14.2` or `1.13.0, 1.14.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<String>,
    /// Which version was chosen for each cluster, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["cluster".into()]))]
    pub resolution: Vec<ClusterResolution>,
}

impl AsRef<PlacementStatus> for InstanceStatus {
    fn as_ref(&self) -> &PlacementStatus {
        &self.placement
    }
}

/// Which version was chosen for a cluster, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterResolution {
    /// Name of the Cluster.
    pub cluster: String,
    /// Version that was chosen. Unset: none fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The cluster's Kubernetes version that it was chosen for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Why this version, or why none.
    pub message: String,
}
