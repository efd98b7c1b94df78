//! Poll schedules with a fixed interval and an offset per object.

use std::time::Duration;

use jiff::Timestamp;

use crate::jitter::jitter;

/// The poll schedule of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    every: u64,
    offset: u64,
}

impl Poll {
    /// Creates a schedule. `seed` identifies the object, so that objects created together are not polled together.
    pub fn new(every: Duration, seed: &str) -> Self {
        let every = every.max(Duration::from_secs(1));
        Self { every: every.as_secs(), offset: every.mul_f64(jitter(seed)).as_secs() }
    }

    /// Returns the number of the current period. A poll is due when it has changed since the last one.
    pub fn period(&self, now: Timestamp) -> u64 {
        (seconds(now) + self.offset) / self.every
    }

    /// Returns the time until the next poll.
    pub fn wait(&self, now: Timestamp) -> Duration {
        Duration::from_secs(self.every - (seconds(now) + self.offset) % self.every)
    }
}

fn seconds(now: Timestamp) -> u64 {
    u64::try_from(now.as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_second(i64::try_from(second).unwrap()).unwrap()
    }

    #[test]
    fn the_next_poll_is_due_when_the_period_ends() {
        let poll = Poll::new(Duration::from_mins(10), "uid");
        for now in [0, 599, 1_700_000_123] {
            let wait = poll.wait(at(now)).as_secs();
            assert!((1..=600).contains(&wait));
            assert_eq!(poll.period(at(now + wait - 1)), poll.period(at(now)));
            assert_eq!(poll.period(at(now + wait)), poll.period(at(now)) + 1);
        }
    }

    #[test]
    fn objects_are_polled_at_different_times() {
        let every = Duration::from_mins(10);
        let waits: std::collections::HashSet<_> =
            (0..100).map(|n| Poll::new(every, &format!("uid-{n}")).wait(at(0))).collect();
        assert!(waits.len() > 80, "{}", waits.len());
    }
}
