//! Leader election by a Lease, as pure functions of the observed Lease and the time.

use std::time::Duration;

use jiff::Timestamp;

/// The timing of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long the Lease is valid after its last renewal.
    pub duration: Duration,
}

impl LeaseTimes {
    /// Returns how often the leader renews.
    pub fn renew_interval(self) -> Duration {
        self.duration / 3
    }

    /// Returns the time after the last renewal at which the leader stops. It is well before another process may lead.
    pub fn renew_deadline(self) -> Duration {
        self.duration * 2 / 3
    }

    /// Returns the time after the last observed renewal at which another process may take over: the duration of the
    /// Lease plus a grace period for the old leader to stop.
    pub fn takeover_delay(self) -> Duration {
        self.duration + self.duration / 3
    }
}

/// A Lease as read from the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedLease {
    /// Identity of the holder. Empty means that the Lease is free.
    pub holder: String,
    /// By the clock of the holder, so it is compared only with other times of the same holder.
    pub renewed: Option<Timestamp>,
}

/// Decides when a candidate may acquire the Lease.
///
/// It does not trust the clocks of other processes: it measures by its own clock how long ago the Lease has changed.
#[derive(Clone, Debug)]
pub struct LeaseObserver {
    identity: String,
    times: LeaseTimes,
    /// The last observed Lease, and since when it is unchanged.
    observed: Option<(ObservedLease, Timestamp)>,
}

/// What a candidate does about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Acquire,
    /// Another process holds the Lease.
    Wait,
}

impl LeaseObserver {
    pub fn new(identity: impl Into<String>, times: LeaseTimes) -> Self {
        Self { identity: identity.into(), times, observed: None }
    }

    /// Decides from the Lease as read at `now`. `None` means that it does not exist.
    pub fn observe(&mut self, lease: Option<ObservedLease>, now: Timestamp) -> Decision {
        let Some(lease) = lease else { return Decision::Acquire };
        if lease.holder.is_empty() || lease.holder == self.identity {
            return Decision::Acquire;
        }
        let since = match &self.observed {
            Some((known, since)) if *known == lease => *since,
            _ => now,
        };
        self.observed = Some((lease, since));
        let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        if age >= self.times.takeover_delay() { Decision::Acquire } else { Decision::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: LeaseTimes = LeaseTimes { duration: Duration::from_secs(15) };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(holder: &str, renewed: i64) -> ObservedLease {
        ObservedLease { holder: holder.to_owned(), renewed: Some(at(renewed)) }
    }

    #[test]
    fn a_free_lease_is_acquired_and_a_held_one_is_not() {
        let mut observer = LeaseObserver::new("me", TIMES);
        assert_eq!(observer.observe(None, at(0)), Decision::Acquire);
        assert_eq!(observer.observe(Some(lease("", 0)), at(0)), Decision::Acquire);
        assert_eq!(observer.observe(Some(lease("me", 0)), at(0)), Decision::Acquire);
        assert_eq!(observer.observe(Some(lease("other", 0)), at(0)), Decision::Wait);
    }

    #[test]
    fn an_expired_lease_is_acquired_after_the_grace_period_by_the_own_clock() {
        let mut observer = LeaseObserver::new("me", TIMES);
        // The holder's clock is an hour ahead, which makes no difference.
        assert_eq!(observer.observe(Some(lease("other", 3_600)), at(0)), Decision::Wait);
        assert_eq!(observer.observe(Some(lease("other", 3_600)), at(19)), Decision::Wait);
        assert_eq!(
            observer.observe(Some(lease("other", 3_605)), at(20)),
            Decision::Wait,
            "it was renewed: the delay starts again"
        );
        assert_eq!(observer.observe(Some(lease("other", 3_605)), at(39)), Decision::Wait);
        assert_eq!(observer.observe(Some(lease("other", 3_605)), at(40)), Decision::Acquire);
    }

    #[test]
    fn a_leader_stops_before_another_process_takes_over() {
        assert!(TIMES.renew_interval() < TIMES.renew_deadline());
        assert!(TIMES.renew_deadline() < TIMES.takeover_delay());
    }
}
