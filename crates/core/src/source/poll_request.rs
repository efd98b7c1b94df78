//! Requests to poll a Source before it is due, from webhooks.

use std::time::Duration;

use jiff::Timestamp;

use crate::catalog::LastPoll;

/// The shortest time between two polls. Requests within it cause one poll.
const SPACING: Duration = Duration::from_secs(5);

/// A request to poll a Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollRequest {
    /// When the poll is due.
    at: Timestamp,
    /// Whether it follows a poll that found nothing new.
    is_repeated: bool,
}

impl PollRequest {
    pub fn new(now: Timestamp) -> Self {
        Self { at: now, is_repeated: false }
    }

    /// Returns the time until the poll is due. Zero means that it is.
    pub fn delay(self, last: Option<&LastPoll>, now: Timestamp) -> Duration {
        let earliest = last.map_or(self.at, |last| self.at.max(last.at + SPACING));
        Duration::try_from(earliest.duration_since(now)).unwrap_or_default()
    }

    /// Returns the request that follows a poll. Git hosts may send a webhook shortly before they list what was pushed, so a
    /// poll that found nothing new is repeated once.
    pub fn next(self, found_new: bool, now: Timestamp) -> Option<Self> {
        (!found_new && !self.is_repeated).then(|| Self { at: now + SPACING, is_repeated: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_request_is_due_at_once_but_not_shortly_after_another_poll() {
        let request = PollRequest::new(at(100));
        let last = |second| LastPoll { generation: Some(1), at: at(second), failures: None };
        assert_eq!(request.delay(None, at(100)), Duration::ZERO);
        assert_eq!(request.delay(Some(&last(50)), at(100)), Duration::ZERO);
        assert_eq!(request.delay(Some(&last(98)), at(100)), Duration::from_secs(3));
        assert_eq!(request.delay(Some(&last(98)), at(200)), Duration::ZERO);
    }

    #[test]
    fn a_poll_that_found_nothing_is_repeated_once() {
        let request = PollRequest::new(at(100));
        assert_eq!(request.next(true, at(101)), None);
        let again = request.next(false, at(101)).unwrap();
        assert_eq!(again.delay(None, at(101)), SPACING);
        assert_eq!(again.next(false, at(106)), None);
    }
}
