//! Requests to poll a Source before it is due, from webhooks and users.

use std::time::Duration;

use chandler_api::extensions::{RECONCILE_ANNOTATION, Source};
use jiff::Timestamp;

use crate::poll::LastPoll;

/// The shortest time between two polls. Requests within it cause one poll.
const SPACING: Duration = Duration::from_secs(5);

/// A request to poll a Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollRequest {
    /// When the poll is due.
    at: Timestamp,
    /// Whether the poll is repeated if it finds nothing new.
    repeats: bool,
}

impl PollRequest {
    /// Returns the request of a webhook. Git hosts may send it shortly before they list what was pushed, so a poll that finds
    /// nothing new is repeated once.
    pub fn of_webhook(now: Timestamp) -> Self {
        Self { at: now, repeats: true }
    }

    /// Returns the request that a user has added to a Source as an annotation, unless it has been handled.
    pub fn of_user(source: &Source, now: Timestamp) -> Option<Self> {
        let requested = source.metadata.annotations.as_ref()?.get(RECONCILE_ANNOTATION)?;
        let handled = source.status.as_ref().and_then(|status| status.last_handled_reconcile_at.as_ref());
        (handled != Some(requested)).then_some(Self { at: now, repeats: false })
    }

    /// Returns the request of a deletion, which needs to know what has moved.
    pub fn of_deletion(now: Timestamp) -> Self {
        Self { at: now, repeats: false }
    }

    /// Returns the time until the poll is due. Zero means that it is.
    pub fn delay(self, last: Option<&LastPoll>, now: Timestamp) -> Duration {
        let earliest = last.map_or(self.at, |last| self.at.max(last.at + SPACING));
        Duration::try_from(earliest.duration_since(now)).unwrap_or_default()
    }

    /// Returns the request that follows a poll.
    pub fn next(self, found_new: bool, now: Timestamp) -> Option<Self> {
        (!found_new && self.repeats).then(|| Self { at: now + SPACING, repeats: false })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_request_is_due_at_once_but_not_shortly_after_another_poll() {
        let request = PollRequest::of_webhook(at(100));
        let last = |second| LastPoll { generation: Some(1), at: at(second), failures: None };
        assert_eq!(request.delay(None, at(100)), Duration::ZERO);
        assert_eq!(request.delay(Some(&last(50)), at(100)), Duration::ZERO);
        assert_eq!(request.delay(Some(&last(98)), at(100)), Duration::from_secs(3));
        assert_eq!(request.delay(Some(&last(98)), at(200)), Duration::ZERO);
    }

    #[test]
    fn a_poll_of_a_webhook_that_found_nothing_is_repeated_once() {
        let request = PollRequest::of_webhook(at(100));
        assert_eq!(request.next(true, at(101)), None);
        let again = request.next(false, at(101)).unwrap();
        assert_eq!(again.delay(None, at(101)), SPACING);
        assert_eq!(again.next(false, at(106)), None);
    }

    fn of_user(annotations: &Value, status: &Value) -> Option<PollRequest> {
        let source = serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": "apps", "annotations": annotations},
            "spec": {"git": {"url": "https://git.example/a"}}, "status": status,
        }));
        PollRequest::of_user(&source.unwrap(), at(100))
    }

    #[test]
    fn a_request_of_a_user_is_handled_once() {
        let rows = [
            (json!({}), json!(null), false),
            (json!({"chandler.dev/reconcile-at": "t1"}), json!(null), true),
            (json!({"chandler.dev/reconcile-at": "t1"}), json!({"lastHandledReconcileAt": "t1"}), false),
            (json!({"chandler.dev/reconcile-at": "t2"}), json!({"lastHandledReconcileAt": "t1"}), true),
        ];
        for (annotations, status, expected) in rows {
            assert_eq!(of_user(&annotations, &status).is_some(), expected, "{annotations} {status}");
        }
        let request = of_user(&json!({"chandler.dev/reconcile-at": "t1"}), &json!(null)).unwrap();
        assert_eq!((request.delay(None, at(100)), request.next(false, at(101))), (Duration::ZERO, None));
    }
}
