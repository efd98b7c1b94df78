//! Status of the kinds, shared by every face of a placement and of a release.

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What Chandler saw of a placement and did about it. The same for every kind that stands for a placement.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// `Ready` sums up the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The Clusters that the selector matches.
    #[serde(default)]
    pub matching_clusters: Vec<ObjectReference>,
    /// On how many of the matching clusters the release is ready, for example `3/4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_clusters: Option<String>,
    /// The generation that the rest of the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl AsRef<PlacementStatus> for PlacementStatus {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// What Chandler saw of a release and did about it. The same for every kind that stands for a release.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStatus {
    /// `Ready` sums up the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Status of the release in Helm's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Newest revision of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The generation that the rest of the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The package that the spec resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<PackageRecord>,
    /// The values that the spec's text stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<ValuesRecord>,
    /// Objects of the release on the workload cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<ObjectRecord>,
    /// The revision that `inventory` speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory_revision: Option<u32>,
    /// The last revisions, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RevisionRecord>,
    /// The last failure, until an operation succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureRecord>,
}

/// A package, pinned by its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageRecord {
    /// What was asked for: repository, chart and version, joined. The rest holds while this stays the same.
    pub reference: String,
    /// Version that was found.
    pub version: String,
    /// `sha256:…` of the package.
    pub digest: String,
    /// Whether rendering depends on the cluster's version or APIs.
    #[serde(default)]
    pub reads_capabilities: bool,
    /// OCI artifact type of the package, which selects the package tool. Unset for Helm charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// Digests of the values: of the text as written, and of what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesRecord {
    /// `sha256:…` of the text.
    pub text: String,
    /// `sha256:…` of the canonical values.
    pub canonical: String,
}

/// An object on the workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRecord {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; unset for cluster-wide objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// One revision of the release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionRecord {
    /// Its number.
    pub revision: u32,
    /// Its status in Helm's words.
    pub status: String,
    /// Version of its package, if Chandler made or read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it was made, or first seen.
    pub at: Time,
}

/// What went wrong last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureRecord {
    /// The kind of failure, for example `Conflict` or `Unreachable`.
    pub category: String,
    /// What happened, and what to do.
    pub message: String,
    /// The inputs that failed; other inputs are tried at once.
    pub input: String,
    /// How often in a row.
    pub count: u32,
    /// When it failed last.
    pub at: Time,
}
