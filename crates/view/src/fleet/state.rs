//! The state and the health of a release.

use std::fmt;

use chandler_api::status::HEALTHY;
pub use chandler_core::release::State;
use serde::Serialize;

use super::model::Release;

/// What the condition `Healthy` of a release object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Health {
    Healthy,
    Unhealthy,
    /// The objects of the release were not observed yet, or their cluster does not answer.
    Unknown,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        })
    }
}

impl Release {
    pub fn state(&self) -> State {
        let outdated =
            self.status.observed_generation.is_some_and(|observed| Some(observed) != self.generation);
        State::from_ready(self.ready(), self.deletion_timestamp.is_some(), outdated)
    }

    /// Returns the health of its objects. `None` means that they are not watched.
    pub fn health(&self) -> Option<Health> {
        Some(match self.condition(HEALTHY)?.status.as_str() {
            "True" => Health::Healthy,
            "False" => Health::Unhealthy,
            _ => Health::Unknown,
        })
    }
}
