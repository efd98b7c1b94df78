//! How a release is doing.

pub use chandler_core::release::State;

use super::model::Release;

impl Release {
    pub fn state(&self) -> State {
        let outdated = self.status.observed_generation.is_some_and(|seen| Some(seen) != self.generation);
        State::from_ready(self.ready(), self.deleted.is_some(), outdated)
    }
}
