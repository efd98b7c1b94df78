//! What a policy says about objects that differ from their package.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to objects of a release that were changed or deleted by others.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct DriftPolicy {
    /// What happens to them.
    #[serde(default)]
    pub mode: DriftMode,
    /// Fields that are neither compared nor corrected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ignore: Vec<DriftIgnore>,
}

/// What happens to objects of a release that were changed or deleted by others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DriftMode {
    /// Nothing: they are not compared.
    #[default]
    Ignore,
    /// The condition `Drifted` names them.
    Report,
    /// They are changed back, and deleted ones are created again. This adds no revision.
    Correct,
}

/// Fields that are neither compared nor corrected.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct DriftIgnore {
    /// The objects. If unset, all objects of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<DriftTarget>,
    /// The fields, as JSON pointers such as `/spec/replicas`. Everything below them is ignored, too.
    #[schemars(length(min = 1, max = 32), inner(length(min = 2, max = 512), regex(pattern = "^(/[^/]+)+$")))]
    pub paths: Vec<String>,
}

/// Objects of a release, by exact match. What is unset matches all of them.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct DriftTarget {
    /// Kind of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Namespace of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}
