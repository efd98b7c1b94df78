//! What is kept of an object that exists. There are many of them, and most are healthy, so that this takes little memory.

use std::sync::Arc;

use chandler_core::{
    health::{ObjectState, Observation},
    identity::ReleaseId,
};
use jiff::Timestamp;

/// An object that exists.
#[derive(Debug)]
pub struct Entry {
    /// `None` if the object is healthy.
    state: Option<Box<ObjectState>>,
    since: Timestamp,
    pub release: Option<Arc<ReleaseId>>,
    /// It was read with other health checks, so its state is not known.
    pub is_outdated: bool,
}

impl Entry {
    /// An object that has had this state since then.
    pub fn new(
        state: ObjectState,
        since: Timestamp,
        release: Option<Arc<ReleaseId>>,
        is_outdated: bool,
    ) -> Self {
        let state = (state != ObjectState::Healthy).then(|| Box::new(state));
        Self { state, since, release, is_outdated }
    }

    /// Returns how much memory the reason for the state takes.
    pub fn reason_bytes(&self) -> usize {
        self.state.as_deref().map_or(0, reason_bytes)
    }

    /// Returns what was observed of the object.
    pub fn observation(&self) -> Observation {
        let state = self.state.as_deref().cloned().unwrap_or(ObjectState::Healthy);
        Observation::Seen { state, since: self.since }
    }
}

/// Returns how much memory a state takes.
pub fn reason_bytes(state: &ObjectState) -> usize {
    match state {
        ObjectState::Healthy => 0,
        ObjectState::Progressing(reason) | ObjectState::Failed(reason) => {
            size_of::<ObjectState>() + reason.len()
        }
        ObjectState::Unknown => size_of::<ObjectState>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_takes_little_memory_and_keeps_its_state() {
        assert!(size_of::<Entry>() <= 40, "{}", size_of::<Entry>());
        let since = Timestamp::new(9, 7).unwrap();
        for state in [
            ObjectState::Healthy,
            ObjectState::Unknown,
            ObjectState::Progressing("0 of 1".to_owned()),
            ObjectState::Failed("crash".to_owned()),
        ] {
            let entry = Entry::new(state.clone(), since, None, false);
            assert_eq!(entry.observation(), Observation::Seen { state, since });
        }
    }
}
