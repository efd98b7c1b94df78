//! Conditions of the provider's kinds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    #[serde(default)]
    pub message: String,
    pub last_transition_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The observed state of a condition, without its transition time.
#[derive(Debug, Clone)]
pub(super) struct ObservedCondition {
    pub(super) type_: &'static str,
    pub(super) status: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl ObservedCondition {
    /// Returns the condition for the status. Keeps the previous transition time if the status is unchanged.
    pub(super) fn to_condition(&self, previous: &[Condition], generation: Option<i64>) -> Condition {
        let status = if self.status { "True" } else { "False" };
        let since = previous
            .iter()
            .find(|condition| condition.type_ == self.type_ && condition.status == status)
            .map_or_else(now, |condition| condition.last_transition_time.clone());
        Condition {
            type_: self.type_.to_owned(),
            status: status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            last_transition_time: since,
            observed_generation: generation,
        }
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
