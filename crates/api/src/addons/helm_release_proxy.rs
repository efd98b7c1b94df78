use k8s_openapi::api::core::v1::ObjectReference;
use kube_derive::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Credentials, HelmOptions, ReconcileStrategy, TlsConfig, default_namespace, is_default, rules};
use crate::status::ReleaseStatus;

/// One release of a chart on one Cluster. Created by a HelmChartProxy.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "HelmReleaseProxy",
    plural = "helmreleaseproxies",
    shortname = "hrp",
    category = "cluster-api",
    doc = "One release of a chart on one Cluster. Created by a HelmChartProxy.",
    namespaced,
    status = "ReleaseStatus",
    derive = "PartialEq",
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
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::immutable_release_name(),
    validation = rules::immutable_namespace(),
    validation = rules::immutable_strategy()
)]
#[serde(rename_all = "camelCase")]
pub struct HelmReleaseProxySpec {
    /// The Cluster of the release. Its name is immutable.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    #[x_kube(validation = rules::immutable_cluster())]
    pub cluster_ref: ObjectReference,
    /// Name of the chart in its repository. Immutable.
    #[x_kube(validation = rules::immutable())]
    pub chart_name: String,
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry. Immutable.
    #[serde(rename = "repoURL")]
    #[x_kube(validation = rules::absolute_url(), validation = rules::immutable())]
    pub repo_url: String,
    /// Name of the release. Immutable once set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub release_name: String,
    /// Namespace of the release on the workload cluster. Empty means `default`. Immutable.
    #[serde(default = "default_namespace", rename = "namespace")]
    pub release_namespace: String,
    /// Version of the chart. If unset, the newest version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Values as YAML.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values: String,
    /// Whether the release is kept in sync with the spec, or only installed. Immutable.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reconcile_strategy: ReconcileStrategy,
    /// Options of Helm operations.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub options: HelmOptions,
    /// Credentials for the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// TLS configuration of the connection to the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<TlsConfig>,
}
