//! The state of a release.

pub use chandler_core::release::State;

use super::model::Release;

impl Release {
    pub fn state(&self) -> State {
        let outdated =
            self.status.observed_generation.is_some_and(|observed| Some(observed) != self.generation);
        State::from_ready(self.ready(), self.deletion_timestamp.is_some(), outdated)
    }
}
