use k8s_openapi::api::core::v1::ObjectReference;
use kube_derive::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Credentials, HelmOptions, ReconcileStrategy, TlsConfig, is_default};
use crate::status::ReleaseStatus;

/// One release of a chart on one Cluster. Made by a HelmChartProxy.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "HelmReleaseProxy",
    plural = "helmreleaseproxies",
    shortname = "hrp",
    category = "cluster-api",
    doc = "One release of a chart on one Cluster. Made by a HelmChartProxy.",
    namespaced,
    status = "ReleaseStatus",
    derive = "PartialEq",
    label("cluster.x-k8s.io/v1beta1", "v1alpha1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    crates(kube_core = "kube_core"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
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
    printcolumn(name = "Chart", type_ = "string", json_path = ".spec.chartName"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.package.version"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.status"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct HelmReleaseProxySpec {
    /// The Cluster the release lives on.
    pub cluster_ref: ObjectReference,
    /// Name of the chart in its repository.
    pub chart_name: String,
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry.
    #[serde(rename = "repoURL")]
    pub repo_url: String,
    /// Name of the release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub release_name: String,
    /// Namespace of the release on the workload cluster.
    #[serde(default, rename = "namespace")]
    pub release_namespace: String,
    /// Version of the chart. Unset: the newest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Values as YAML.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values: String,
    /// Whether the release is kept as the spec says, or only installed. Immutable.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reconcile_strategy: ReconcileStrategy,
    /// Options of the Helm operations.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: HelmOptions,
    /// Credentials of the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// How the connection to the repository is secured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<TlsConfig>,
}
