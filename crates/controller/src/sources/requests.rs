//! Requests to poll a Source before it is due.

use std::{collections::HashMap, time::Instant};

use chandler_core::{failure::Failure, source::PollRequest};
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::locks::Mutex;

/// Requests to poll Sources, by uid.
#[derive(Debug, Default)]
pub(super) struct PollRequests(Mutex<HashMap<String, PollRequest>>);

impl PollRequests {
    /// Adds the request of a webhook. It replaces an earlier one, so that its poll is repeated if it finds nothing new.
    pub fn add(&self, uid: &str, now: Timestamp) {
        self.0.lock().insert(uid.to_owned(), PollRequest::of_webhook(now));
    }

    pub fn get(&self, uid: &str) -> Option<PollRequest> {
        self.0.lock().get(uid).copied()
    }

    /// Returns the request and removes it, when a poll starts.
    pub fn take(&self, uid: &str) -> Option<PollRequest> {
        self.0.lock().remove(uid)
    }

    /// Adds the request of a user, or the one that follows a poll, unless there is another one.
    pub fn add_if_none(&self, uid: &str, request: PollRequest) {
        self.0.lock().entry(uid.to_owned()).or_insert(request);
    }
}

/// The last requested polls of Sources that have ended, by uid. Other polls may use a list of refs that is
/// older than they are.
#[derive(Debug, Default)]
pub(super) struct EndedPolls {
    polls: Mutex<HashMap<String, EndedPoll>>,
    ended: Notify,
}

#[derive(Clone, Debug)]
pub(super) struct EndedPoll {
    pub began: Instant,
    pub failure: Option<Failure>,
}

impl EndedPolls {
    pub fn record(&self, uid: &str, poll: EndedPoll) {
        self.polls.lock().insert(uid.to_owned(), poll);
        self.ended.notify_waiters();
    }

    /// Waits until a poll has ended that has begun since a moment.
    pub async fn since(&self, uid: &str, moment: Instant) -> EndedPoll {
        loop {
            let ended = self.ended.notified();
            if let Some(poll) = self.polls.lock().get(uid).filter(|poll| poll.began >= moment) {
                return poll.clone();
            }
            ended.await;
        }
    }

    pub fn forget(&self, uid: &str) {
        self.polls.lock().remove(uid);
    }
}
