use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::addons::is_default;

/// How far the rollout of a placement is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// What the rollout does.
    pub state: RolloutState,
    /// Name of the current wave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<String>,
    /// Number of the current wave, beginning with 1. 0 if there is none.
    #[serde(default)]
    pub wave_index: u32,
    /// Number of waves that have clusters.
    #[serde(default)]
    pub waves: u32,
    /// Number of clusters.
    #[serde(default)]
    pub total: u32,
    /// Number of clusters whose release object has the current spec and is neither being updated nor failed. First installations
    /// count, ready or not.
    #[serde(default)]
    pub updated: u32,
    /// Number of clusters whose release is being updated.
    #[serde(default)]
    pub updating: u32,
    /// Number of clusters whose release has failed since the rollout was resumed last.
    #[serde(default)]
    pub failed: u32,
    /// Number of clusters whose release waits for its turn.
    #[serde(default)]
    pub waiting: u32,
    /// Number of clusters that are unreachable or paused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unavailable: u32,
    /// Number of clusters that a user has left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skipped: u32,
    /// Digests of what the clusters are updated to: one, unless clusters get different packages. If these are more than 10,
    /// the digest of the spec that they share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// What the rollout waits for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What a rollout does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutState {
    /// Releases are being updated.
    Progressing,
    /// The releases of a wave have to be ready for a while before the next wave begins.
    Soaking,
    /// A user has paused it, or `rollout` of the policy is invalid.
    Paused,
    /// Too many releases have failed.
    Stopped,
    /// A user has aborted it.
    Aborted,
    /// There is nothing to update.
    #[default]
    Done,
}

impl RolloutState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Progressing => "Progressing",
            Self::Soaking => "Soaking",
            Self::Paused => "Paused",
            Self::Stopped => "Stopped",
            Self::Aborted => "Aborted",
            Self::Done => "Done",
        }
    }
}

impl fmt::Display for RolloutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
