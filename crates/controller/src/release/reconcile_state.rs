//! State that is kept between reconciles. If it is lost, it is read again.

use std::{collections::HashMap, sync::Arc};

use chandler_api::status::ReleaseStatus;
use chandler_core::{
    digest::InputDigest,
    drift::{DriftRules, DriftState},
    inventory::Expectation,
};
use jiff::Timestamp;

use super::inputs::Inputs;

use crate::locks::{Mutex, MutexGuard};

/// The state of one release object.
#[derive(Clone, Debug, Default)]
pub struct ReconcileState {
    /// The status that was written last, until the watch shows it: in a box, because most of the time there is none.
    pub status: Option<Box<ReleaseStatus>>,
    /// The inputs, and the key for which they were resolved.
    pub inputs: Option<(InputsKey, Inputs)>,
    /// A foreign revision that was read, and the inputs that it differs from.
    pub differs: Option<(u32, InputDigest)>,
    /// Whether the finalizer of the deleted object has been removed. The watch may lag behind: another object may own the
    /// release by now.
    pub finalizer_removed: bool,
    /// Whether the tool has confirmed that the release does not exist, and no operation was started since.
    pub absence_confirmed: bool,
    /// Whether an Event was published because the Cluster is gone and the release was not uninstalled.
    pub not_uninstalled_published: bool,
    /// The requested revision that cannot be restored, after an Event has named it.
    pub impossible_rollback: Option<u32>,
    /// The state that our last operation reported.
    pub expectation: Option<Expectation>,
    /// When the message about an unhealthy object changed last.
    pub health_message_changed_at: Option<Timestamp>,
    /// What was compared with the package, if the policy wants it.
    pub drift: Option<Arc<DriftState>>,
    /// The rules of the last comparison that was started.
    pub compared_rules: Option<DriftRules>,
    /// When the last Event about corrections was published.
    pub corrected_event_at: Option<Timestamp>,
    /// How often in a row tests could not run that the release is ready without, and when that was last.
    pub untested: Option<(u32, Timestamp)>,
}

/// The key for which inputs were resolved. They are valid while it is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputsKey {
    pub generation: Option<i64>,
    pub kubernetes_minor: Option<String>,
    /// Counts the polls for an unpinned version. 0 for a pinned one.
    pub period: u64,
    /// Counts the changes of the repository of an unpinned version. 0 for a pinned one.
    pub changes: u64,
}

/// The states of all release objects, by uid. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ReconcileStates(Arc<Mutex<HashMap<String, ReconcileState>>>);

impl ReconcileStates {
    pub fn get(&self, uid: &str) -> ReconcileState {
        self.lock().get(uid).cloned().unwrap_or_default()
    }

    pub fn insert(&self, uid: &str, state: ReconcileState) {
        self.lock().insert(uid.to_owned(), state);
    }

    /// Replaces a state, unless it was removed because the object is gone.
    pub fn replace(&self, uid: &str, state: ReconcileState) {
        if let Some(known) = self.lock().get_mut(uid) {
            *known = state;
        }
    }

    /// Drops the status that was written, if the watch shows it. It is large, and there may be many thousands of them.
    pub fn drop_status_if_current(&self, uid: &str, status: Option<&ReleaseStatus>) {
        if let Some(state) = self.lock().get_mut(uid)
            && state.status.as_deref() == status
        {
            state.status = None;
        }
    }

    pub fn remove(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ReconcileState>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_an_object_that_is_gone_is_not_kept() {
        let state = || ReconcileState { absence_confirmed: true, ..ReconcileState::default() };
        let all = ReconcileStates::default();
        all.insert("uid", ReconcileState { finalizer_removed: true, ..ReconcileState::default() });
        all.replace("uid", state());
        assert!(all.get("uid").absence_confirmed && !all.get("uid").finalizer_removed);
        all.remove("uid");
        all.replace("uid", state());
        assert!(all.lock().is_empty());
    }

    #[test]
    fn a_status_is_kept_until_the_watch_shows_it() {
        let status =
            |revision| Box::new(ReleaseStatus { revision: Some(revision), ..ReleaseStatus::default() });
        let all = ReconcileStates::default();
        all.insert("uid", ReconcileState { status: Some(status(2)), ..ReconcileState::default() });
        for other in [None, Some(status(1))] {
            all.drop_status_if_current("uid", other.as_deref());
            assert_eq!(all.get("uid").status, Some(status(2)), "the watch lags behind");
        }
        all.drop_status_if_current("uid", Some(&*status(2)));
        assert_eq!(all.get("uid").status, None);
    }
}
