//! Delays between attempts to reach a hub.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(15);
/// A connection that lasted as long was no failure: the next attempt after it starts with the shortest delay.
const STABLE: Duration = Duration::from_secs(10);

const FIRST_HOLD: Duration = Duration::from_secs(5);
const LONGEST_HOLD: Duration = Duration::from_mins(1);

/// Counts the failures of one connection and returns how long to wait before the next attempt.
///
/// The delays have full jitter: thousands of agents lose a hub at the same moment, and only a delay anywhere between zero
/// and the limit spreads their handshakes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the delay after a failed attempt or a lost connection. `lasted` is how long the connection was up, `None` if
    /// there was none. `random` is a number from 0 to 1.
    pub fn next(&mut self, lasted: Option<Duration>, random: f64) -> Duration {
        if lasted.is_some_and(|lasted| lasted >= STABLE) {
            self.failures = 0;
        }
        let limit = limit(self.failures);
        self.failures = self.failures.saturating_add(1);
        limit.mul_f64(random.clamp(0.0, 1.0))
    }
}

/// Returns the longest delay after a number of earlier failures.
fn limit(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.min(10)).min(LONGEST)
}

/// Returns how long a request that a hub has refused is not sent again, after a number of earlier refusals. `random` is a number
/// from 0 to 1, and varies the delay by half: agents that were refused together ask again one by one.
pub fn hold_back(refusals: u32, random: f64) -> Duration {
    let limit = FIRST_HOLD.saturating_mul(1 << refusals.min(10)).min(LONGEST_HOLD);
    limit.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_are_held_back_for_five_seconds_to_a_minute() {
        let rows = [(0, 1.0, 5_000), (0, 0.0, 2_500), (1, 1.0, 10_000), (3, 1.0, 40_000), (4, 1.0, 60_000)];
        for (refusals, random, milliseconds) in rows {
            let expected = Duration::from_millis(milliseconds);
            assert_eq!(hold_back(refusals, random), expected, "after {refusals} refusals");
        }
        assert_eq!(hold_back(u32::MAX, 0.5), Duration::from_secs(45));
    }

    #[test]
    fn limits_double_up_to_fifteen_seconds() {
        let rows =
            [(0, 500), (1, 1_000), (2, 2_000), (4, 8_000), (5, 15_000), (6, 15_000), (u32::MAX, 15_000)];
        for (failures, milliseconds) in rows {
            assert_eq!(limit(failures), Duration::from_millis(milliseconds), "after {failures} failures");
        }
    }

    #[test]
    fn the_jitter_is_full_and_a_stable_connection_resets_the_delay() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(None, 1.0), Duration::from_millis(500));
        assert_eq!(backoff.next(None, 0.0), Duration::ZERO);
        assert_eq!(backoff.next(None, 0.5), Duration::from_secs(1));
        assert_eq!(backoff.next(Some(Duration::from_secs(1)), 1.0), Duration::from_secs(4));
        assert_eq!(backoff.next(Some(STABLE), 1.0), Duration::from_millis(500));
        assert_eq!(backoff.next(None, 1.0), Duration::from_secs(1));
    }
}
