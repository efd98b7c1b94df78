//! When a catalog or a Source is polled.

use std::{str::FromStr as _, time::Duration};

use chandler_api::addons::Timeout;
use jiff::Timestamp;

use crate::{
    backoff,
    failure::{Category, Failure},
    poll::Poll,
};

/// The last poll of a catalog or a Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPoll {
    pub generation: Option<i64>,
    pub at: Timestamp,
    /// Number of consecutive failures and the category of the last one.
    pub failures: Option<(u32, Category)>,
}

/// Returns the poll interval that `spec.interval` asks for.
pub fn interval(text: &Timeout) -> Result<Duration, Failure> {
    let text = &text.0;
    let invalid = |problem: String| {
        Failure::new(Category::InvalidSpec, format!("spec.interval {problem}; write it like 1h or 30m"))
    };
    let interval = kube_core::Duration::from_str(text)
        .map_err(|error| invalid(format!("{text:?} is invalid: {error}")))?;
    let negative = interval.is_negative();
    let positive = Some(Duration::from(interval)).filter(|one| !negative && !one.is_zero());
    positive.ok_or_else(|| invalid(format!("is {text}, but must be greater than zero")))
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
    fn intervals_are_positive_durations() {
        let read = |text: &str| interval(&Timeout(text.to_owned()));
        assert_eq!(read("1h").unwrap(), HOUR);
        assert_eq!(read("90s").unwrap(), Duration::from_secs(90));
        for bad in ["", "0s", "-1h", "soon"] {
            assert!(read(bad).unwrap_err().message.contains("spec.interval"), "{bad}");
        }
    }
}
