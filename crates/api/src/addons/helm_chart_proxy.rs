use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Credentials, HelmOptions, ReconcileStrategy, TlsConfig, default_namespace, is_default, rules};
use crate::status::PlacementStatus;

/// Installs one chart on every Cluster in its namespace that a selector matches.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "HelmChartProxy",
    plural = "helmchartproxies",
    shortname = "hcp",
    category = "cluster-api",
    doc = "Installs one chart on every Cluster in its namespace that a selector matches.",
    namespaced,
    status = "PlacementStatus",
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
    printcolumn(name = "Chart", type_ = "string", json_path = ".spec.chartName"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Clusters", type_ = "string", json_path = ".status.readyClusters"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::immutable_strategy())]
#[serde(rename_all = "camelCase")]
pub struct HelmChartProxySpec {
    /// Selects Clusters in the same namespace by label. An empty selector selects every Cluster in the namespace.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub cluster_selector: LabelSelector,
    /// Name of the chart in its repository.
    pub chart_name: String,
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry. A new value must not contain a user name or
    /// password.
    #[serde(rename = "repoURL")]
    #[x_kube(validation = rules::absolute_url(), validation = rules::no_login())]
    pub repo_url: String,
    /// Name of the release. If unset, a name is generated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub release_name: String,
    /// Namespace of the release on the workload cluster. Empty means `default`.
    #[serde(default = "default_namespace", rename = "namespace", skip_serializing_if = "String::is_empty")]
    pub release_namespace: String,
    /// Version of the chart. If unset, the newest version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Values as YAML. Go templates in it can refer to `.Cluster`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values_template: String,
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
