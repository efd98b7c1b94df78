use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::addons::is_default;

/// What the objects of namespaces may use and install. If several AddonTenancies select a namespace, all of them must allow it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "AddonTenancy",
    plural = "addontenancies",
    shortname = "at",
    category = "chandler",
    doc = "What the objects of namespaces may use and install. If several AddonTenancies select a namespace, all of them must allow it.",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(name = "Namespaces", type_ = "string", json_path = ".spec.namespaces.names"),
    printcolumn(name = "Targets", type_ = "string", json_path = ".spec.targetNamespaces"),
    printcolumn(name = "Account", type_ = "string", json_path = ".spec.workloadServiceAccount.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct AddonTenancySpec {
    /// The namespaces of the management cluster that this AddonTenancy applies to.
    pub namespaces: TenantNamespaces,
    /// The repositories, registries, catalogs and Sources that they may use. If unset, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<AllowedSources>,
    /// Names of the Extensions in the platform namespace that ExtensionInstances may install regardless of the other fields, if
    /// they set nothing but the extension, its version and channel, the clusters and the policy. If unset, all; `*` at the end of
    /// a name matches any text. Extensions that the platform installs by default or enforces are among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub platform_extensions: Option<Vec<String>>,
    /// The namespaces of workload clusters that releases and their objects may be in. If unset, all; `*` at the end of a name
    /// matches any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)))]
    #[x_kube(validation = rules::namespace_patterns())]
    pub target_namespaces: Option<Vec<String>>,
    /// The kinds of objects that releases and Syncs may have.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub kinds: AllowedKinds,
    /// The ServiceAccount of workload clusters as which objects of releases are read, written and deleted. If set, releases
    /// cannot name another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_service_account: Option<WorkloadServiceAccount>,
}

/// Namespaces by name, by label, or both: those that either one selects.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::names_or_selector())]
pub struct TenantNamespaces {
    /// Names of namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    pub names: Vec<String>,
    /// Selects namespaces by label. An empty selector selects all namespaces, that of the platform included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::checked_selector")]
    pub selector: Option<LabelSelector>,
}

/// What packages and files may come from. What is not listed is not allowed.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct AllowedSources {
    /// The beginnings of URLs, such as `https://charts.example/team-a` or `oci://registry.example/team-a`. They end at a `/` of the
    /// URL: this one does not allow `https://charts.example/team-a-2`. The address of a package that the index of a repository names
    /// must be allowed, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 1024)))]
    #[x_kube(validation = rules::url_prefixes())]
    pub url_prefixes: Vec<String>,
    /// Names of ExtensionCatalogs in the platform namespace. `*` at the end of a name matches any text. Catalogs of the own namespace
    /// need an allowed URL instead. A catalog that is a folder of a Source needs no entry in `platformSources`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub platform_catalogs: Vec<String>,
    /// Names of Sources in the platform namespace. `*` at the end of a name matches any text. Sources of the own namespace need an
    /// allowed URL instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub platform_sources: Vec<String>,
}

/// Kinds of objects.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct AllowedKinds {
    /// The allowed kinds of objects that are in no namespace, such as ClusterRoles, CustomResourceDefinitions and webhook
    /// configurations. If unset, none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub cluster_scoped: Vec<KindPattern>,
    /// Kinds that are not allowed. If unset, all kinds of objects in namespaces are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub denied: Vec<KindPattern>,
}

/// Kinds of an API group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct KindPattern {
    /// The API group, for example `rbac.authorization.k8s.io`. If unset, that of core kinds such as Secret. `*` means any.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The kind, for example `ClusterRole`. `*` means any.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// A ServiceAccount of workload clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadServiceAccount {
    /// Namespace of the ServiceAccount. If unset, that of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("pattern" = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// Name of the ServiceAccount.
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}
