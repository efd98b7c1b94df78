//! Leader election by a Lease, as pure functions of the observed Lease and the time.
//!
//! All ages are measured on one clock of one machine, [`BootTime`]. The times in a Lease are by the wall clock of its
//! holder, so they are compared only for equality.

use std::{ops::Add, time::Duration};

use jiff::Timestamp;

/// The minimum delay between two attempts to renew.
const MIN_RETRY: Duration = Duration::from_millis(200);

/// A point in time by the clock that counts from the start of this machine (`CLOCK_BOOTTIME`).
///
/// Setting the wall clock does not change it, and it continues while the process is stopped and while the machine is
/// suspended. All processes of a machine may compare these points in time; those of other machines mean nothing to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// Creates the point in time that is this long after the start of the machine.
    pub const fn new(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Returns how long after the start of the machine this is.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// Returns how long after `earlier` this is, or zero if it is before.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// The timing of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Times with which a leader would not stop before its successor starts, or would never retry.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease duration ({duration:?}) must be longer than the renew deadline ({renew_deadline:?}), which must be longer \
     than the retry period ({retry_period:?})"
)]
pub struct InvalidLeaseTimes {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl LeaseTimes {
    /// The renew deadline defaults to two thirds of the duration, the retry period to one third.
    pub fn new(
        duration: Duration,
        renew_deadline: Option<Duration>,
        retry_period: Option<Duration>,
    ) -> Result<Self, InvalidLeaseTimes> {
        let renew_deadline = renew_deadline.unwrap_or(duration * 2 / 3);
        let retry_period = retry_period.unwrap_or(duration / 3);
        if Duration::ZERO < retry_period && retry_period < renew_deadline && renew_deadline < duration {
            Ok(Self { duration, renew_deadline, retry_period })
        } else {
            Err(InvalidLeaseTimes { duration, renew_deadline, retry_period })
        }
    }

    /// Returns how long the Lease is valid after its last renewal.
    pub fn duration(self) -> Duration {
        self.duration
    }

    /// Returns the time after its last renewal at which the leader stops.
    pub fn renew_deadline(self) -> Duration {
        self.renew_deadline
    }

    /// Returns how often the leader renews.
    pub fn retry_period(self) -> Duration {
        self.retry_period
    }

    /// Returns how often a standby reads the Lease.
    pub fn poll_period(self) -> Duration {
        self.retry_period / 2
    }

    /// Returns how long a leader may take to stop after the renew deadline, so that it has stopped when the Lease ends.
    pub fn stop_period(self) -> Duration {
        self.duration.saturating_sub(self.renew_deadline)
    }

    /// Returns the time after the last observed change at which another process may take over: the duration of the
    /// Lease and a third more. The holder may be configured with a longer duration, which then counts.
    fn takeover_delay(self, of_holder: Option<Duration>) -> Duration {
        let duration = self.duration.max(of_holder.unwrap_or_default());
        duration.saturating_add(duration / 3)
    }
}

/// A Lease as read from the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedLease {
    /// Identity of the holder. Empty means that the Lease is free.
    pub holder: String,
    /// By the wall clock of the holder, so it only shows that the Lease was renewed, not when.
    pub renewed: Option<Timestamp>,
    /// How long the holder considers the Lease valid after a renewal.
    pub duration: Option<Duration>,
}

/// Decides when a candidate may acquire the Lease.
///
/// It does not trust the clocks of other processes: it measures by its own clock how long ago it saw the Lease change.
#[derive(Clone, Debug)]
pub struct LeaseObserver {
    identity: String,
    times: LeaseTimes,
    /// The Lease that another process holds, or `None` if it was deleted, and since when it is unchanged.
    observed: Option<(Option<ObservedLease>, BootTime)>,
}

/// What a candidate does about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Acquire,
    /// Another process holds the Lease, or held it when it was deleted.
    Wait,
}

impl LeaseObserver {
    pub fn new(identity: impl Into<String>, times: LeaseTimes) -> Self {
        Self { identity: identity.into(), times, observed: None }
    }

    /// Decides from the Lease as read at `now`. `None` means that it does not exist.
    pub fn observe(&mut self, lease: Option<ObservedLease>, now: BootTime) -> Decision {
        let is_free = match &lease {
            // The holder of a deleted Lease still leads until it notices.
            None => self.observed.is_none(),
            Some(lease) => lease.holder.is_empty() || lease.holder == self.identity,
        };
        if is_free {
            return Decision::Acquire;
        }
        let since = match &self.observed {
            Some((known, since)) if *known == lease => *since,
            _ => now,
        };
        let delay = self.times.takeover_delay(lease.as_ref().and_then(|lease| lease.duration));
        self.observed = Some((lease, since));
        if now.saturating_since(since) >= delay { Decision::Acquire } else { Decision::Wait }
    }
}

/// The last confirmed renewal of a Lease that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    times: LeaseTimes,
    requested: BootTime,
}

impl Renewal {
    /// `requested` is when the request was sent that renewed the Lease. Other processes cannot have seen it earlier.
    pub fn new(times: LeaseTimes, requested: BootTime) -> Self {
        Self { times, requested }
    }

    /// Returns when the leader renews next, or retries after a failed attempt that ended at `now`.
    pub fn next_attempt(self, now: BootTime) -> BootTime {
        (self.requested + self.times.retry_period).max(now + MIN_RETRY)
    }

    /// Returns when the leader stops unless it has renewed again.
    pub fn deadline(self) -> BootTime {
        self.requested + self.times.renew_deadline
    }

    /// Returns until when this process certainly holds the Lease: no other process takes over before.
    pub fn held_until(self) -> BootTime {
        self.requested + self.times.duration
    }
}

/// What the holder does after the API server refused its write because the Lease has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterConflict {
    /// Writes again, over the Lease as it is now.
    WriteAgain,
    /// The Lease belongs to another process, or was released.
    Lost,
}

/// Decides from the Lease as read after the conflict. `None` means that it does not exist.
///
/// A Lease that names this process was changed by its own write, whose response was lost. A deleted Lease is created
/// again: standbys wait for that.
pub fn after_conflict(lease: Option<&ObservedLease>, identity: &str) -> AfterConflict {
    if lease.is_none_or(|lease| lease.holder == identity) {
        AfterConflict::WriteAgain
    } else {
        AfterConflict::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn times() -> LeaseTimes {
        LeaseTimes::new(seconds(15), None, None).unwrap()
    }

    fn at(second: u64) -> BootTime {
        BootTime::new(seconds(second))
    }

    #[expect(clippy::unnecessary_wraps, reason = "rows of tables also have no Lease")]
    fn lease(holder: &str, renewed: i64) -> Option<ObservedLease> {
        let renewed = Some(Timestamp::from_second(renewed).unwrap());
        Some(ObservedLease { holder: holder.to_owned(), renewed, duration: Some(seconds(15)) })
    }

    #[test]
    fn a_free_lease_is_acquired_and_a_held_one_is_not() {
        let rows = [
            (None, Decision::Acquire),
            (lease("", 0), Decision::Acquire),
            (lease("me", 0), Decision::Acquire),
            (lease("other", 0), Decision::Wait),
        ];
        for (lease, expected) in rows {
            let decision = LeaseObserver::new("me", times()).observe(lease.clone(), at(0));
            assert_eq!(decision, expected, "{lease:?}");
        }
    }

    /// Each row is what a standby reads, at which time of its own clock, and what it decides.
    fn assert_decisions(case: &str, rows: Vec<(u64, Option<ObservedLease>, Decision)>) {
        let mut observer = LeaseObserver::new("me", times());
        for (now, lease, expected) in rows {
            assert_eq!(observer.observe(lease, at(now)), expected, "{case}, at {now} s");
        }
    }

    #[test]
    fn the_age_of_a_lease_counts_from_its_last_observed_change_whatever_the_wall_clocks_show() {
        use Decision::{Acquire, Wait};
        for (case, first, renewed) in [
            ("equal clocks", 1_000, 1_005),
            ("the holder's clock is an hour ahead", 1_000 + HOUR, 1_005 + HOUR),
            ("the holder's clock is an hour behind", 1_000 - HOUR, 1_005 - HOUR),
            ("the holder's clock jumps an hour forward", 1_000, 1_005 + HOUR),
            ("the holder's clock jumps an hour back", 1_000, 1_005 - HOUR),
        ] {
            assert_decisions(
                case,
                vec![
                    (100, lease("other", first), Wait),
                    (119, lease("other", first), Wait),
                    // It was renewed: the delay starts again.
                    (120, lease("other", renewed), Wait),
                    (139, lease("other", renewed), Wait),
                    (140, lease("other", renewed), Acquire),
                ],
            );
        }
    }

    #[test]
    fn a_change_of_the_holder_starts_the_delay_again() {
        use Decision::{Acquire, Wait};
        assert_decisions(
            "another standby was faster",
            vec![
                (0, lease("first", 0), Wait),
                (19, lease("second", 0), Wait),
                (38, lease("second", 0), Wait),
                (39, lease("second", 0), Acquire),
            ],
        );
        assert_decisions("it is released", vec![(0, lease("other", 0), Wait), (1, lease("", 0), Acquire)]);
    }

    #[test]
    fn a_deleted_lease_leaves_its_holder_time_to_create_it_again() {
        use Decision::{Acquire, Wait};
        assert_decisions(
            "the holder does not return",
            vec![(0, lease("other", 0), Wait), (10, None, Wait), (29, None, Wait), (30, None, Acquire)],
        );
        assert_decisions(
            "the holder creates it again",
            vec![(0, lease("other", 0), Wait), (10, None, Wait), (15, lease("other", 15), Wait)],
        );
    }

    #[test]
    fn a_longer_duration_of_the_holder_delays_the_takeover() {
        let held = |duration| {
            lease("other", 0).map(|lease| ObservedLease { duration: Some(seconds(duration)), ..lease })
        };
        for (duration, takeover) in [(1, 20), (15, 20), (60, 80)] {
            let mut observer = LeaseObserver::new("me", times());
            assert_eq!(observer.observe(held(duration), at(0)), Decision::Wait);
            assert_eq!(observer.observe(held(duration), at(takeover - 1)), Decision::Wait, "{duration}");
            assert_eq!(observer.observe(held(duration), at(takeover)), Decision::Acquire, "{duration}");
        }
    }

    #[test]
    fn a_leader_stops_before_its_lease_ends_and_that_is_before_another_process_takes_over() {
        for (duration, deadline, retry) in
            [(15, None, None), (2, None, None), (60, Some(59), Some(1)), (10, Some(2), Some(1))]
        {
            let (deadline, retry) = (deadline.map(seconds), retry.map(seconds));
            let times = LeaseTimes::new(seconds(duration), deadline, retry).unwrap();
            let renewal = Renewal::new(times, at(100));
            // A standby sees the renewal when it was requested or later.
            let takeover = at(100) + times.takeover_delay(None);
            assert!(renewal.next_attempt(at(100)) < renewal.deadline(), "{times:?}");
            assert!(renewal.deadline() + times.stop_period() <= renewal.held_until(), "{times:?}");
            assert!(renewal.held_until() < takeover, "{times:?}");
        }
    }

    #[test]
    fn times_without_room_to_retry_or_to_stop_are_rejected() {
        for (duration, deadline, retry) in [(15, 15, 5), (15, 20, 5), (15, 10, 10), (15, 10, 0), (0, 0, 0)] {
            let times = LeaseTimes::new(seconds(duration), Some(seconds(deadline)), Some(seconds(retry)));
            assert!(times.is_err(), "{times:?}");
        }
        let defaults = LeaseTimes::new(seconds(15), Some(seconds(10)), Some(seconds(5)));
        assert_eq!(defaults, Ok(times()));
    }

    #[test]
    fn a_failed_renewal_is_retried_soon_and_a_successful_one_after_the_retry_period() {
        let renewal = Renewal::new(times(), at(100));
        assert_eq!(renewal.next_attempt(at(100)), at(105));
        assert_eq!(renewal.next_attempt(at(107)), at(107) + MIN_RETRY);
    }

    #[test]
    fn a_conflict_with_the_own_write_does_not_end_leadership() {
        let rows = [
            (lease("me", 5), AfterConflict::WriteAgain),
            (None, AfterConflict::WriteAgain),
            (lease("other", 5), AfterConflict::Lost),
            (lease("", 5), AfterConflict::Lost),
        ];
        for (lease, expected) in rows {
            assert_eq!(after_conflict(lease.as_ref(), "me"), expected, "{lease:?}");
        }
    }
}
