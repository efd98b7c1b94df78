//! The status types that all kinds of placements and of releases share.

mod compare_and_test;
mod object_records;
mod revision_health;
mod rollout;

use std::fmt;

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    compare_and_test::{DriftStatus, DriftedObject, DriftedState, TestRecord, TestState},
    object_records::ObjectRecords,
    revision_health::{RevisionHealth, RevisionState},
    rollout::{RolloutState, RolloutStatus},
};
use crate::addons::is_default;

/// Condition of a release object: its objects exist on the workload cluster and are healthy.
pub const HEALTHY: &str = "Healthy";
/// Condition of a release object whose placement refers to an AddonPolicy: the policy is used.
pub const POLICY_ACCEPTED: &str = "PolicyAccepted";

/// Condition of a release object whose policy compares objects with their package: some of them differ.
pub const DRIFTED: &str = "Drifted";
/// Condition of a release object whose policy runs the tests of the package: they have succeeded.
pub const TESTED: &str = "Tested";
/// Condition of a placement whose policy has a rollout: no reachable cluster that is not skipped waits for a change.
pub const ROLLED_OUT: &str = "RolledOut";

/// Observed state of a placement. Every kind of placement has it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// Conditions of the object. `Ready` summarizes the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The Clusters that the selector matches.
    #[serde(default)]
    pub matching_clusters: Vec<ObjectReference>,
    /// The number of matching clusters on which the release is ready, for example `3/4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_clusters: Option<String>,
    /// The rollout of the last change, if the policy has a rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl AsRef<PlacementStatus> for PlacementStatus {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Observed state of a release. Every kind of release object has it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStatus {
    /// Conditions of the object. `Ready` summarizes the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Helm's status of the release, for example `deployed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Newest revision of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The package that the spec resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<PackageRecord>,
    /// Digests of the values in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<ValuesRecord>,
    /// Digest of package, values and options that the release should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<String>,
    /// Objects of the release on the workload cluster.
    #[serde(default, skip_serializing_if = "ObjectRecords::is_empty")]
    pub inventory: ObjectRecords,
    /// The revision that `inventory` describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory_revision: Option<u32>,
    /// The last revisions, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RevisionRecord>,
    /// The health of a revision that a rollout has created, until it counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<RevisionHealth>,
    /// The last failure, until an operation succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureRecord>,
    /// The last comparison of the objects with the package, if the policy wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftStatus>,
    /// The last tests of the package, if the policy wants them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested: Option<TestRecord>,
}

/// A package, pinned by its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageRecord {
    /// Repository, chart and version that the spec requests, joined. The record is valid while it does not change.
    pub reference: String,
    /// The resolved version.
    pub version: String,
    /// `sha256:…` of the package.
    pub digest: String,
    /// Whether rendering depends on the version or the APIs of the cluster.
    #[serde(default)]
    pub reads_capabilities: bool,
    /// OCI artifact type of the package, which selects the package tool. Unset for Helm charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// Digests of the values: of their text, and of the parsed values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesRecord {
    /// `sha256:…` of the text.
    pub text: String,
    /// `sha256:…` of the canonical values.
    pub canonical: String,
}

/// An object on the workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRecord {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace. Unset for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ObjectRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

/// One revision of the release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionRecord {
    /// Number of the revision.
    pub revision: u32,
    /// Helm's status of the revision.
    pub status: String,
    /// Version of its package, if Chandler created the revision or read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it was created, or first observed.
    pub at: Time,
}

/// The last failure of a release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureRecord {
    /// Category of the failure, for example `Conflict` or `Unreachable`.
    pub category: String,
    /// What failed, and how to fix it.
    pub message: String,
    /// Identifies the inputs that failed. Changed inputs are tried at once, without backoff.
    pub input: String,
    /// Number of consecutive failures.
    pub count: u32,
    /// Number of these failures that the release itself has caused, which `remediation.retries` of its policy limits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts: u32,
    /// Identifies the inputs that `attempts` counts, if another step has failed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted: Option<String>,
    /// How often in a row the process of the package tool has ended because of this release. After three times, the release is
    /// stalled until its inputs change, or a user asks to try again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub crashes: u32,
    /// Identifies the inputs that `crashes` counts, if another step has failed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crashed: Option<String>,
    /// When it failed last.
    pub at: Time,
}
