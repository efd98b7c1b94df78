//! When a catalog or a Source is polled, or a Sync is applied.

use std::time::Duration;

use jiff::Timestamp;

use super::Poll;
use crate::{backoff, failure::Category};

/// The last poll of a catalog or a Source, or the last time at which a Sync was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPoll {
    pub generation: Option<i64>,
    pub at: Timestamp,
    /// Number of consecutive failures and the category of the last one.
    pub failures: Option<(u32, Category)>,
}

impl LastPoll {
    /// Returns a poll that follows `before`. `failed` is the category of its failure. Failures of the same generation are counted.
    pub fn after(
        before: Option<&Self>,
        generation: Option<i64>,
        failed: Option<Category>,
        at: Timestamp,
    ) -> Self {
        let before = before.filter(|last| last.generation == generation).and_then(|last| last.failures);
        let count = before.map_or(0, |(count, _)| count) + 1;
        Self { generation, at, failures: failed.map(|category| (count, category)) }
    }
}

/// Returns the time until the next poll. Zero means that it is due.
///
/// A changed spec is polled at once. The delay grows after failures, but never beyond the interval.
pub fn poll_delay(
    last: Option<&LastPoll>,
    generation: Option<i64>,
    interval: Duration,
    seed: &str,
    now: Timestamp,
) -> Duration {
    let Some(last) = last.filter(|last| last.generation == generation) else { return Duration::ZERO };
    let Some((count, category)) = last.failures else {
        let poll = Poll::new(interval, seed);
        return if poll.period(last.at) == poll.period(now) { poll.wait(now) } else { Duration::ZERO };
    };
    let delay = backoff::delay(category, count, seed).min(interval);
    let elapsed = Duration::try_from(now.duration_since(last.at)).unwrap_or_default();
    delay.saturating_sub(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn successful_polls_keep_the_interval_and_failures_are_retried_sooner() {
        let delay = |failures, generation, interval, now| {
            let last = LastPoll { generation: Some(1), at: at(1_000_000), failures };
            poll_delay(Some(&last), Some(generation), interval, "uid", at(now))
        };
        assert_eq!(poll_delay(None, Some(1), HOUR, "uid", at(0)), Duration::ZERO);
        assert_eq!(delay(None, 2, HOUR, 1_000_001), Duration::ZERO, "a changed spec is polled at once");
        let next = 1_000_000 + i64::try_from(Poll::new(HOUR, "uid").wait(at(1_000_000)).as_secs()).unwrap();
        assert!((1_000_001..=1_003_600).contains(&next), "{next}");
        assert_eq!(delay(None, 1, HOUR, next - 1), Duration::from_secs(1));
        assert_eq!(delay(None, 1, HOUR, next), Duration::ZERO);
        let once = Some((1, Category::SourceUnavailable));
        assert!((3..=6).contains(&delay(once, 1, HOUR, 1_000_000).as_secs()));
        assert_eq!(delay(once, 1, HOUR, 1_000_010), Duration::ZERO);
        let often = Some((20, Category::SourceUnavailable));
        assert_eq!(delay(often, 1, Duration::from_secs(30), 1_000_000), Duration::from_secs(30));
    }

    #[test]
    fn consecutive_failures_of_a_generation_are_counted() {
        let polls = [(1, true, 1), (1, true, 2), (2, true, 1), (2, true, 2), (2, false, 0), (2, true, 1)];
        let mut last = None;
        for (generation, fails, expected) in polls {
            let failed = fails.then_some(Category::SourceUnavailable);
            let next = LastPoll::after(last.as_ref(), Some(generation), failed, at(0));
            assert_eq!(next.failures, failed.map(|category| (expected, category)));
            last = Some(next);
        }
    }
}
