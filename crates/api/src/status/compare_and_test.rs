//! What was compared and tested after a release was deployed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ObjectRecord;
use crate::addons::is_default;

/// The last comparison of the objects of a release with its package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftStatus {
    /// Digest of the objects, the revision and the policy that were compared. Nothing is compared again while it is the same.
    pub compared_digest: String,
    /// The objects that differ or could not be compared, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<DriftedObject>,
    /// Number of further such objects.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more: u32,
}

/// An object that differs from its package, or could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftedObject {
    /// The object.
    pub object: ObjectRecord,
    /// Whether it differs.
    pub state: DriftedState,
    /// The fields that differ, as JSON pointers, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Why it could not be compared or corrected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// How an object differs from its package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftedState {
    /// Fields of it were changed.
    Changed,
    /// It does not exist.
    Missing,
    /// It could not be compared.
    Unknown,
}

/// The last tests of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestRecord {
    /// The revision that was tested.
    pub revision: u32,
    /// How the tests have ended.
    pub state: TestState,
    /// Which tests have failed, and why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How the tests of a package have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TestState {
    /// All of them have succeeded.
    Succeeded,
    /// One of them has failed.
    Failed,
}
