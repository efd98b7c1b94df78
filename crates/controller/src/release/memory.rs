//! What is remembered between passes. Losing it costs a look, never a release.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chandler_api::status::ReleaseStatus;
use chandler_core::inventory::Expectation;
use jiff::Timestamp;

use super::inputs::Inputs;

/// A release that follows the newest version looks for it this often.
const LOOK_UP_AGAIN: Duration = Duration::from_mins(10);

/// What is remembered of one release object.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The status as it was written last: the watch may lag behind.
    pub status: Option<ReleaseStatus>,
    /// The inputs, and what they were found for.
    pub inputs: Option<(InputsKey, Inputs)>,
    /// A revision of someone else's that was read and differs from what is wanted.
    pub differs: Option<u32>,
    /// What our last operation left.
    pub expectation: Option<Expectation>,
}

/// What inputs were found for: they hold while this stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputsKey {
    pub generation: Option<i64>,
    pub kubernetes_minor: Option<String>,
    /// Counts the periods after which an unpinned version is looked up again. 0 for a pinned one.
    pub period: u64,
}

impl InputsKey {
    pub fn new(
        generation: Option<i64>,
        kubernetes_minor: Option<String>,
        pinned: bool,
        now: Timestamp,
    ) -> Self {
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let period = if pinned { 0 } else { seconds / LOOK_UP_AGAIN.as_secs() };
        Self { generation, kubernetes_minor, period }
    }
}

/// By uid. Clones share.
#[derive(Clone, Debug, Default)]
pub struct Memories(Arc<Mutex<HashMap<String, Memory>>>);

impl Memories {
    pub fn recall(&self, uid: &str) -> Memory {
        self.lock().get(uid).cloned().unwrap_or_default()
    }

    pub fn keep(&self, uid: &str, memory: Memory) {
        self.lock().insert(uid.to_owned(), memory);
    }

    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_hold_for_a_generation_a_kubernetes_minor_and_a_while() {
        let key = |generation, minor: &str, pinned, second| {
            InputsKey::new(
                Some(generation),
                Some(minor.to_owned()),
                pinned,
                Timestamp::from_second(second).unwrap(),
            )
        };
        assert_eq!(
            key(1, "1.34", true, 0),
            key(1, "1.34", true, 100_000),
            "a pinned version is looked up once"
        );
        assert_eq!(key(1, "1.34", false, 0), key(1, "1.34", false, 599));
        assert_ne!(key(1, "1.34", false, 0), key(1, "1.34", false, 600));
        assert_ne!(key(1, "1.34", true, 0), key(2, "1.34", true, 0));
        assert_ne!(key(1, "1.34", true, 0), key(1, "1.35", true, 0));
    }
}
