//! Requests to poll a Source before it is due.

use std::collections::HashMap;

use chandler_core::source::PollRequest;
use jiff::Timestamp;

use crate::sync::Mutex;

/// Requests to poll Sources, by uid.
#[derive(Debug, Default)]
pub(super) struct PollRequests(Mutex<HashMap<String, PollRequest>>);

impl PollRequests {
    pub fn add(&self, uid: &str, now: Timestamp) {
        self.0.lock().insert(uid.to_owned(), PollRequest::new(now));
    }

    pub fn get(&self, uid: &str) -> Option<PollRequest> {
        self.0.lock().get(uid).copied()
    }

    /// Returns the request and removes it, when a poll starts.
    pub fn take(&self, uid: &str) -> Option<PollRequest> {
        self.0.lock().remove(uid)
    }

    /// Adds the request that follows a poll, unless another one was added meanwhile.
    pub fn add_next(&self, uid: &str, next: PollRequest) {
        self.0.lock().entry(uid.to_owned()).or_insert(next);
    }
}
