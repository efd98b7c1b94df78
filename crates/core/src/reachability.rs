//! Decides when a workload cluster that is not watched is reported as unavailable.
//!
//! A passing fault is not reported: for the first seconds of an outage, the last known state of the cluster is kept.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    backoff,
    failure::{Category, Failure},
};

/// A cluster that has sent nothing for so long is asked whether it still answers.
const PROBE_AFTER: Duration = Duration::from_secs(12);
/// Connections on which little happens are used at ticks, which are common to all of them: a process that wakes up for many
/// connections takes less CPU time than one that wakes up for each.
const TICK: Duration = Duration::from_secs(1);
/// A cluster is asked at the latest when nothing was heard from it for so long.
pub const LATEST_PROBE: Duration = PROBE_AFTER.saturating_add(TICK);
/// How long a cluster may take to answer a request.
///
/// An outage that begins right after an answer is noticed after `LATEST_PROBE + ANSWER_TIMEOUT` at the latest: 34 s.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(21);
/// A longer break between two answers of a cluster is an outage, though perhaps one that is not
/// reported: what happened on the cluster meanwhile was not seen.
pub const LONGEST_BREAK: Duration = LATEST_PROBE.saturating_add(Duration::from_secs(7));
/// How long the last known state of a cluster is kept while it is not watched: until a first request that is not answered has
/// failed, so that its error is part of the report.
pub const REPORT_AFTER: Duration = Duration::from_secs(22);
/// A cluster that was watched for so long is available again: earlier failures do not count any more.
pub const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The first retries follow quickly, because most outages are short.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const QUICK_RETRIES: u32 = 4;
/// An unavailable cluster is tried at least this often.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Returns when a cluster is asked whether it still answers. Both times count from the same start.
///
/// Only clusters to which a connection is open are asked at ticks. The others would have to be connected at the same moment,
/// which is expensive on both sides. Without ticks they are connected as they were before: a few at a time.
pub fn probe_at(last_answer: Duration, is_connected: bool) -> Duration {
    let earliest = last_answer + PROBE_AFTER;
    if is_connected { next_tick(earliest) } else { earliest }
}

/// Returns the first tick that is not before `time`. Both count from the same start.
pub fn next_tick(time: Duration) -> Duration {
    let ticks = time.as_nanos().div_ceil(TICK.as_nanos());
    TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// A time during which a cluster is not watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    since: Timestamp,
    failures: u32,
    last: Option<Failure>,
}

impl Outage {
    /// Begins an outage at the time of the cluster's last answer, after so many failures since which the cluster was
    /// available for a moment only.
    pub fn new(since: Timestamp, failures: u32) -> Self {
        Self { since, failures, last: None }
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Takes in that an attempt to connect, or the watch, has failed.
    pub fn failed(&mut self, failure: Failure) {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(failure);
    }

    /// Returns how long after its beginning the outage is reported.
    pub fn report_after(&self) -> Duration {
        match self.last.as_ref().map(|failure| failure.category) {
            // `Unauthorized`: credentials that have expired may be replaced soon, and every attempt reads the kubeconfig again.
            None
            | Some(Category::Unreachable | Category::Timeout | Category::Internal | Category::Unauthorized) => {
                REPORT_AFTER
            }
            Some(_) => Duration::ZERO,
        }
    }

    /// Returns the failure to report.
    pub fn failure(&self) -> Failure {
        // A message with fractions of a second is harder to read.
        let since = Timestamp::from_second(self.since.as_second()).unwrap_or(self.since);
        match &self.last {
            Some(failure) if !matches!(failure.category, Category::Unreachable | Category::Timeout) => {
                failure.clone()
            }
            Some(failure) => {
                Failure::new(Category::Unreachable, format!("no answer since {since}: {}", failure.message))
            }
            None => Failure::new(
                Category::Unreachable,
                format!(
                    "no answer since {since} from the workload cluster; check that its API server runs and that the \
                     management cluster can reach it"
                ),
            ),
        }
    }

    /// Returns how long to wait before the next attempt. `seed` identifies the cluster.
    pub fn retry_delay(&self, seed: &str) -> Duration {
        if self.report_after().is_zero() {
            return backoff::delay(Category::Unreachable, self.failures, seed).min(LONGEST_WAIT);
        }
        if self.failures <= QUICK_RETRIES {
            let doublings = self.failures.saturating_sub(1);
            return backoff::jittered(FIRST_RETRY.saturating_mul(1 << doublings), self.failures, seed);
        }
        backoff::delay(Category::Unreachable, self.failures - QUICK_RETRIES, seed).min(LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(failures: &[Category]) -> Outage {
        let mut outage = Outage::new(Timestamp::from_millisecond(1_700_000_000_123).unwrap(), 0);
        for category in failures {
            outage.failed(Failure::new(*category, "connection refused"));
        }
        outage
    }

    #[test]
    fn connected_clusters_are_asked_at_ticks() {
        let rows = [
            (0, true, 12_000),
            (1, true, 13_000),
            (500, true, 13_000),
            (999, true, 13_000),
            (1_000, true, 13_000),
            (0, false, 12_000),
            (1, false, 12_001),
            (999, false, 12_999),
        ];
        for (last_answer, is_connected, at) in rows {
            let probe = probe_at(Duration::from_millis(last_answer), is_connected);
            assert_eq!(probe, Duration::from_millis(at), "{last_answer} {is_connected}");
            assert!(probe <= Duration::from_millis(last_answer) + LATEST_PROBE);
        }
    }

    #[test]
    fn only_what_a_retry_may_fix_is_held_back() {
        use Category::{Forbidden, Internal, InvalidSpec, Timeout, Unauthorized, Unreachable};
        let rows = [
            (outage(&[]), REPORT_AFTER),
            (outage(&[Unreachable]), REPORT_AFTER),
            (outage(&[Timeout, Unreachable]), REPORT_AFTER),
            (outage(&[Internal]), REPORT_AFTER),
            (outage(&[Unauthorized]), REPORT_AFTER),
            (outage(&[Unreachable, Unauthorized, Unauthorized]), REPORT_AFTER),
            (outage(&[Forbidden]), Duration::ZERO),
            (outage(&[InvalidSpec]), Duration::ZERO),
        ];
        for (outage, after) in rows {
            assert_eq!(outage.report_after(), after, "{outage:?}");
        }
    }

    #[test]
    fn an_outage_says_since_when_and_why() {
        let silent = outage(&[]).failure();
        assert_eq!(silent.category, Category::Unreachable);
        assert!(silent.message.starts_with("no answer since 2023-11-14T22:13:20Z "), "{silent}");
        let refused = outage(&[Category::Timeout]).failure();
        assert_eq!(refused.category, Category::Unreachable);
        assert!(
            refused.message.contains("no answer since 2023-11-14T22:13:20Z: connection refused"),
            "{refused}"
        );
        let forbidden = outage(&[Category::Forbidden]).failure();
        assert_eq!(forbidden, Failure::new(Category::Forbidden, "connection refused"));
    }

    #[test]
    fn the_first_retries_are_quick_and_later_ones_bounded() {
        let delay =
            |count| outage(&vec![Category::Unreachable; count]).retry_delay("fleet/blue").as_secs_f64();
        let rows = [(1, 0.8, 1.2), (2, 1.6, 2.4), (4, 6.4, 9.6), (5, 4.0, 6.0), (30, 48.0, 60.0)];
        for (count, least, most) in rows {
            assert!((least..=most).contains(&delay(count)), "{count}: {}", delay(count));
        }
    }

    #[test]
    fn what_a_user_has_to_fix_is_not_retried_quickly() {
        let delay = outage(&[Category::InvalidSpec]).retry_delay("fleet/blue").as_secs_f64();
        assert!((4.0..=6.0).contains(&delay), "{delay}");
    }

    #[test]
    fn an_unanswered_probe_is_reported_between_20_and_35_seconds_after_the_last_answer() {
        let early = ANSWER_TIMEOUT.min(REPORT_AFTER);
        assert!(early >= Duration::from_secs(20), "a cluster that stops right before a probe is held too");
        assert!(REPORT_AFTER > ANSWER_TIMEOUT);
        assert!(LATEST_PROBE + ANSWER_TIMEOUT < Duration::from_secs(35));
    }
}
