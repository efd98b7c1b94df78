//! When a catalog is read again.

use std::{str::FromStr as _, time::Duration};

use chandler_api::extensions::ExtensionCatalogSpec;
use jiff::Timestamp;

use crate::{
    backoff,
    failure::{Category, Failure},
    poll::Poll,
};

/// The last time a catalog was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastLook {
    pub generation: Option<i64>,
    pub at: Timestamp,
    /// In a row, with the kind of the last one.
    pub failures: Option<(u32, Category)>,
}

/// How often the spec wants it read.
pub fn interval(spec: &ExtensionCatalogSpec) -> Result<Duration, Failure> {
    let text = &spec.interval.0;
    let invalid = |why: String| {
        Failure::new(Category::InvalidSpec, format!("spec.interval {why}; write it like 1h or 30m"))
    };
    let interval = kube_core::Duration::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let negative = interval.is_negative();
    let positive = Some(Duration::from(interval)).filter(|one| !negative && !one.is_zero());
    positive.ok_or_else(|| invalid(format!("is {text}, but must be more than nothing")))
}

/// How long until the next look; zero: now. A changed spec is looked at once; after failures the wait grows, but never
/// beyond the interval.
pub fn next_look(
    last: Option<&LastLook>,
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
    let wait = backoff::delay(category, count, seed).min(interval);
    let passed = Duration::try_from(now.duration_since(last.at)).unwrap_or_default();
    wait.saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::Timeout;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn good_looks_keep_the_interval_and_failures_are_tried_sooner() {
        let wait = |failures, generation, interval, now| {
            let last = LastLook { generation: Some(1), at: at(1_000_000), failures };
            next_look(Some(&last), Some(generation), interval, "uid", at(now))
        };
        assert_eq!(next_look(None, Some(1), HOUR, "uid", at(0)), Duration::ZERO);
        assert_eq!(wait(None, 2, HOUR, 1_000_001), Duration::ZERO, "a changed spec is looked at");
        let next = 1_000_000 + i64::try_from(Poll::new(HOUR, "uid").wait(at(1_000_000)).as_secs()).unwrap();
        assert!((1_000_001..=1_003_600).contains(&next), "{next}");
        assert_eq!(wait(None, 1, HOUR, next - 1), Duration::from_secs(1));
        assert_eq!(wait(None, 1, HOUR, next), Duration::ZERO);
        let once = Some((1, Category::SourceUnavailable));
        assert!((3..=6).contains(&wait(once, 1, HOUR, 1_000_000).as_secs()));
        assert_eq!(wait(once, 1, HOUR, 1_000_010), Duration::ZERO);
        let often = Some((20, Category::SourceUnavailable));
        assert_eq!(wait(often, 1, Duration::from_secs(30), 1_000_000), Duration::from_secs(30));
    }

    #[test]
    fn intervals() {
        let read = |text: &str| {
            interval(&ExtensionCatalogSpec {
                url: String::new(),
                interval: Timeout(text.to_owned()),
                credentials: None,
                certificate_authority: None,
                verify: None,
                filter: None,
                namespaces: None,
            })
        };
        assert_eq!(read("1h").unwrap(), HOUR);
        assert_eq!(read("90s").unwrap(), Duration::from_secs(90));
        for bad in ["", "0s", "-1h", "soon"] {
            assert!(read(bad).unwrap_err().message.contains("spec.interval"), "{bad}");
        }
    }
}
