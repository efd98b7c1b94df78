//! What is remembered between passes. Losing it costs a look, never a release.

use std::{collections::HashMap, sync::Arc};

use chandler_api::status::ReleaseStatus;
use chandler_core::{digest::InputDigest, inventory::Expectation};

use super::inputs::Inputs;

use crate::sync::{Mutex, MutexGuard};

/// What is remembered of one release object.
#[derive(Clone, Debug, Default)]
pub struct ReconcileState {
    /// The status as it was written last: the watch may lag behind.
    pub status: Option<ReleaseStatus>,
    /// The inputs, and what they were found for.
    pub inputs: Option<(InputsKey, Inputs)>,
    /// A revision of someone else's that was read, and the inputs that it differs from.
    pub differs: Option<(u32, InputDigest)>,
    /// What our last operation left.
    pub expectation: Option<Expectation>,
}

/// What inputs were found for: they hold while this stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputsKey {
    pub generation: Option<i64>,
    pub kubernetes_minor: Option<String>,
    /// Counts the times at which an unpinned version is looked up again. 0 for a pinned one.
    pub period: u64,
    /// Counts the changes that were found in the repository of an unpinned version. 0 for a pinned one.
    pub changes: u64,
}

/// By uid. Clones share.
#[derive(Clone, Debug, Default)]
pub struct ReconcileStates(Arc<Mutex<HashMap<String, ReconcileState>>>);

impl ReconcileStates {
    pub fn get(&self, uid: &str) -> ReconcileState {
        self.lock().get(uid).cloned().unwrap_or_default()
    }

    pub fn keep(&self, uid: &str, state: ReconcileState) {
        self.lock().insert(uid.to_owned(), state);
    }

    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ReconcileState>> {
        self.0.lock()
    }
}
