//! Who may act: one process at a time, by a Lease. Pure: what is seen, and when, is passed in.

use std::time::Duration;

use jiff::Timestamp;

/// How leadership is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long a lease holds after its last renewal.
    pub duration: Duration,
}

impl LeaseTimes {
    /// A leader renews this often.
    pub fn renew_every(self) -> Duration {
        self.duration / 3
    }

    /// A leader that has not renewed for so long stops acting: well before anyone else may begin.
    pub fn give_up_after(self) -> Duration {
        self.duration * 2 / 3
    }

    /// A successor waits this long after the last renewal it saw: the lease, and the time it takes to stop.
    pub fn take_over_after(self) -> Duration {
        self.duration + self.duration / 3
    }
}

/// A Lease as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenLease {
    /// Empty: nobody holds it.
    pub holder: String,
    /// The holder's own clock, only ever compared with itself.
    pub renewed: Option<Timestamp>,
}

/// What a process that wants to lead knows of the Lease. Clocks of others are not trusted: what counts is how long ago,
/// by our own clock, we saw it change.
#[derive(Clone, Debug)]
pub struct Watchman {
    me: String,
    times: LeaseTimes,
    seen: Option<(SeenLease, Timestamp)>,
}

/// What to do about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Take it.
    Take,
    /// Someone else holds it.
    Wait,
}

impl Watchman {
    pub fn new(me: impl Into<String>, times: LeaseTimes) -> Self {
        Self { me: me.into(), times, seen: None }
    }

    /// Decides from the Lease as it was read at `now`. None: there is none.
    pub fn look(&mut self, lease: Option<SeenLease>, now: Timestamp) -> Claim {
        let Some(lease) = lease else { return Claim::Take };
        if lease.holder.is_empty() || lease.holder == self.me {
            return Claim::Take;
        }
        let since = match &self.seen {
            Some((known, since)) if *known == lease => *since,
            _ => now,
        };
        self.seen = Some((lease, since));
        let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        if age >= self.times.take_over_after() { Claim::Take } else { Claim::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: LeaseTimes = LeaseTimes { duration: Duration::from_secs(15) };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(holder: &str, renewed: i64) -> SeenLease {
        SeenLease { holder: holder.to_owned(), renewed: Some(at(renewed)) }
    }

    #[test]
    fn a_free_lease_is_taken_and_a_held_one_is_waited_for() {
        let mut watchman = Watchman::new("me", TIMES);
        assert_eq!(watchman.look(None, at(0)), Claim::Take);
        assert_eq!(watchman.look(Some(lease("", 0)), at(0)), Claim::Take);
        assert_eq!(watchman.look(Some(lease("me", 0)), at(0)), Claim::Take);
        assert_eq!(watchman.look(Some(lease("other", 0)), at(0)), Claim::Wait);
    }

    #[test]
    fn a_dead_leader_is_succeeded_after_lease_and_grace_by_our_own_clock() {
        let mut watchman = Watchman::new("me", TIMES);
        // The holder's clock is an hour off; that changes nothing.
        assert_eq!(watchman.look(Some(lease("other", 3_600)), at(0)), Claim::Wait);
        assert_eq!(watchman.look(Some(lease("other", 3_600)), at(19)), Claim::Wait);
        assert_eq!(
            watchman.look(Some(lease("other", 3_605)), at(20)),
            Claim::Wait,
            "it renewed: the wait begins anew"
        );
        assert_eq!(watchman.look(Some(lease("other", 3_605)), at(39)), Claim::Wait);
        assert_eq!(watchman.look(Some(lease("other", 3_605)), at(40)), Claim::Take);
    }

    #[test]
    fn a_leader_stops_before_anyone_else_begins() {
        assert!(TIMES.renew_every() < TIMES.give_up_after());
        assert!(TIMES.give_up_after() < TIMES.take_over_after());
    }
}
