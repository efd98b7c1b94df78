use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ExtensionReference, PackageSource, ParametersFrom, Reference, ReleaseOptions, rules};
use crate::{addons::is_default, status::PlacementStatus};

/// Installs an extension on clusters.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "ExtensionInstance",
    plural = "extensioninstances",
    shortname = "exti",
    category = "chandler",
    doc = "Installs an extension on clusters.",
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
    printcolumn(name = "Commit", type_ = "string", json_path = ".status.sourceRevisions"),
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
    validation = rules::version_requires_extension(),
    validation = rules::objects_require_service_account()
)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionInstanceSpec {
    /// The extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<ExtensionReference>,
    /// A package without an Extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::package_without_login())]
    pub source: Option<PackageSource>,
    /// The range of acceptable versions. If unset, any version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub version: Option<String>,
    /// The channel to select versions from. If unset, `stable`. Versions without a channel belong to every channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub channel: Option<String>,
    /// The clusters to install the extension on.
    pub clusters: Clusters,
    /// What happens with required extensions that have no instance.
    #[serde(default)]
    pub dependencies: DependencyPolicy,
    /// Name and namespace of the release on the workload cluster.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub release: ReleaseTarget,
    /// Parameters. They override `parametersTemplate`, which overrides `parametersFrom`, which overrides the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::any_object")]
    pub parameters: Option<Map<String, Value>>,
    /// Parameters as YAML, evaluated for each cluster. Go templates in it can refer to `.Cluster`, `.ControlPlane`,
    /// `.InfraCluster`, `.ClusterClass`, `.KubernetesVersion`, and to `.Values`, the parameters that it overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_template: Option<String>,
    /// Parameters from other objects. Later entries override earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub parameters_from: Vec<ParametersFrom>,
    /// The ServiceAccount in the same namespace whose permissions are used to read `parametersFrom[].object`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// The ServiceAccount of the workload cluster, in the namespace of the release, as which objects of the release are read, written
    /// and deleted. If unset, the one of the AddonTenancy or of `--default-workload-service-account`, or else the user of the
    /// kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub workload_service_account_name: Option<String>,
    /// Options of operations.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub options: ReleaseOptions,
    /// The AddonPolicy of the releases. While it does not exist, no operation is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_ref: Option<Reference>,
}

/// One Cluster by name, or the Clusters that a selector matches.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["name", "selector"]))]
pub struct Clusters {
    /// Name of a Cluster in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Selects Clusters in the same namespace by label. An empty selector selects every Cluster in the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
}

/// What happens with required extensions that have no instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DependencyPolicy {
    /// They are installed too, and uninstalled when nothing requires them anymore.
    #[default]
    Install,
    /// They need their own instance. Until it exists, nothing is installed.
    Require,
}

/// Name and namespace of a release on the workload cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct ReleaseTarget {
    /// Name of the release. If unset, the name of the extension, or of the chart, or of the instance for a package of a Source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub name: Option<String>,
    /// Namespace of the release. If unset, the name of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Observed state of an instance.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// The status that every placement has.
    #[serde(flatten)]
    pub placement: PlacementStatus,
    /// The selected versions of all clusters, for example `1.14.2` or `1.13.0, 1.14.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<String>,
    /// The selected version of each cluster, and why it was selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["cluster".into()]))]
    pub resolution: Vec<ClusterResolution>,
    /// How many clusters run which revisions of Sources, for example `3f1a354: 940, 9c1d2aa: 58, not ready: 2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_revisions: Option<String>,
    /// The Sources of the packages, and which clusters have their revisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceProgress>,
}

impl AsRef<PlacementStatus> for InstanceStatus {
    fn as_ref(&self) -> &PlacementStatus {
        &self.placement
    }
}

/// The selected version of a cluster, and why it was selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterResolution {
    /// Name of the Cluster.
    pub cluster: String,
    /// The selected version. Unset if no version fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The Kubernetes version of the cluster that the version was selected for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Why this version was selected, or why no version fits.
    pub message: String,
}

/// Which clusters of an instance have which revisions of a Source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceProgress {
    /// The Source.
    pub source_ref: Reference,
    /// The last revision of the Source that Chandler made packages of. Unset if the packages are those of tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The revisions at which the packages of the releases were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<RevisionCount>,
    /// Number of clusters whose release does not have the package of `revision`, because the package could not be made or
    /// because the cluster is paused. All other clusters have it, also if it was made at an earlier revision.
    #[serde(default, skip_serializing_if = "is_default")]
    pub behind: u32,
    /// Names of these Clusters, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind_clusters: Vec<String>,
}

/// How many clusters have the package that was made at a revision of a Source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevisionCount {
    /// The revision.
    pub revision: String,
    /// Number of clusters whose release object has the package.
    pub clusters: u32,
    /// Number of these clusters on which the release is ready.
    pub ready: u32,
}
