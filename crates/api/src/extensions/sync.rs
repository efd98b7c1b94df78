use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Reference, rules};
use crate::addons::{Timeout, is_default, rules::go_duration};

// The Rust type is not called `Sync`, because that is a trait of the standard library.
/// Applies a folder of a Source to the management cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "Sync",
    root = "SyncObject",
    plural = "syncs",
    shortname = "sy",
    category = "chandler",
    doc = "Applies a folder of a Source to the management cluster.",
    namespaced,
    status = "SyncStatus",
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
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.source.sourceRef.name"),
    printcolumn(name = "Path", type_ = "string", json_path = ".spec.source.path"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.lastApplied.revision"),
    printcolumn(
        name = "Held",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='PruneHeld')].status"
    ),
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
pub struct SyncSpec {
    /// The folder to apply.
    pub source: SyncSource,
    /// The ServiceAccount in the same namespace that objects are read, written and deleted as. Chandler uses none of its own
    /// permissions for them.
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub service_account_name: String,
    /// Interval at which the objects are applied again if the Source does not change, as a Go duration.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub interval: Timeout,
    /// What happens to objects that are no longer in the folder.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub prune: Prune,
    /// Names of the Syncs in the same namespace that have to be ready before this one is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    pub depends_on: Vec<String>,
    /// What happens to the objects when the Sync is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Take over fields that other field managers have set. If `false`, such a conflict is a failure.
    #[serde(default, skip_serializing_if = "is_default")]
    pub force: bool,
    /// Apply and delete nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspend: bool,
}

/// A folder of a Source.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct SyncSource {
    /// The Source.
    pub source_ref: Reference,
    /// Path of the folder, relative to the root of the Source. If unset, the root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::relative_path())]
    pub path: String,
}

/// What happens to objects that are no longer in the folder.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct Prune {
    /// Delete them. If `false`, they are kept and listed in `status.held`.
    #[serde(default)]
    pub enabled: bool,
    /// Delete placements, too: HelmChartProxies and ExtensionInstances, whose deletion uninstalls
    /// add-ons, and the Extensions, ExtensionCatalogs, Sources and AddonPolicies that they depend on.
    /// If `false`, they are kept unless `confirm` names them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delete_placements: bool,
    /// Confirms the deletion of objects that are listed in `status.held`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<PruneConfirmation>,
}

/// Confirms deletions for one revision.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct PruneConfirmation {
    /// The revision of the Source without the objects, as in `status.revision`. For other revisions the confirmation has no
    /// effect.
    #[schemars(length(min = 1, max = 256))]
    pub revision: String,
    /// The objects that may be deleted.
    #[schemars(length(min = 1, max = 1000))]
    pub objects: Vec<ConfirmedObject>,
}

/// An object that may be deleted.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ConfirmedObject {
    /// Group and version. The version is not compared.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace. Unset for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What happens to the objects of a Sync that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They are kept.
    #[default]
    Orphan,
    /// They are deleted, except objects of protected kinds and objects in `status.held`, unless `prune.confirm` names them.
    Prune,
}

/// Observed state of a Sync.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct SyncStatus {
    /// Conditions of the object: `Ready`, `PruneHeld` and `Moving`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The revision of the Source that was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The revision that was applied last, completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied: Option<AppliedRevision>,
    /// The last revisions that were applied, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
    /// The objects that the Sync may have written. An object is listed before it is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<SyncedObject>,
    /// Objects that are no longer in the folder and are kept, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldObject>,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A revision that was applied completely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRevision {
    /// The revision of the Source.
    pub revision: String,
    /// `sha256:…` of the objects.
    pub digest: String,
    /// The Source, as the spec named it.
    pub source_ref: Reference,
    /// The folder, as the spec named it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// When it was applied first.
    pub at: Time,
}

/// An object that a Sync may have written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncedObject {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace. Unset for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid of the object. Unset until it has been written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// An object that is no longer in the folder and is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldObject {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace. Unset for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Why it is kept.
    pub reason: String,
    /// Namespace and name of the Sync that it is kept for, because its directory contains the object,
    /// or may contain it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sync: String,
    /// Why it is kept for that Sync.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
