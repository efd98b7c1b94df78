//! The health of a revision, for rollouts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The health of a revision that a rollout has created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionHealth {
    /// Number of the revision.
    pub revision: u32,
    /// The generation of the spec to which it belongs.
    pub generation: i64,
    /// How far its objects are.
    pub state: RevisionState,
    /// Since when it is in this state.
    pub since: Time,
}

/// How far the objects of a revision are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RevisionState {
    /// Not all objects have been healthy for `minReady` of the rollout.
    Progressing,
    /// All objects have been healthy for `minReady` of the rollout, which was read again at its end.
    Healthy,
    /// An object has failed: it does not become healthy by itself.
    Failed,
    /// The health of some objects cannot be known. The others are healthy.
    Unknown,
}
