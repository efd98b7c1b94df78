//! How much time of a shared process namespaces may use: a token bucket for each of them.

use std::{collections::BTreeMap, time::Duration};

const MINUTE: Duration = Duration::from_mins(1);

/// The time that namespaces have used. A namespace may use all time of a minute at once; then it has to wait until enough of it
/// is given back.
#[derive(Clone, Debug)]
pub struct TimeBudgets {
    per_minute: Duration,
    used: BTreeMap<String, Used>,
}

/// The time that a namespace has used and that was not given back yet, at a point in time.
#[derive(Clone, Copy, Debug)]
struct Used {
    time: Duration,
    at: Duration,
}

impl TimeBudgets {
    /// Creates budgets that give `per_minute` back in each minute. It must be greater than zero.
    pub fn new(per_minute: Duration) -> Self {
        Self { per_minute: per_minute.max(Duration::from_millis(1)), used: BTreeMap::new() }
    }

    /// Returns how long a namespace has to wait, or `None` if it may use time. `now` is the time since an arbitrary start.
    pub fn wait(&self, namespace: &str, now: Duration) -> Option<Duration> {
        let used = self.used_at(namespace, now);
        let excess = used.checked_sub(self.per_minute)?;
        // Never zero, so that a caller that waits so long may go on.
        Some(self.time_to_give_back(excess) + Duration::from_millis(1))
    }

    /// Records that a namespace has used this time.
    pub fn charge(&mut self, namespace: &str, time: Duration, now: Duration) {
        let time = self.used_at(namespace, now).saturating_add(time);
        let (per_minute, used) = (self.per_minute, &mut self.used);
        used.retain(|_, used| !used.left(per_minute, now).is_zero());
        used.insert(namespace.to_owned(), Used { time, at: now });
    }

    fn used_at(&self, namespace: &str, now: Duration) -> Duration {
        self.used.get(namespace).map_or(Duration::ZERO, |used| used.left(self.per_minute, now))
    }

    fn time_to_give_back(&self, time: Duration) -> Duration {
        MINUTE.mul_f64(time.as_secs_f64() / self.per_minute.as_secs_f64())
    }
}

impl Used {
    fn left(&self, per_minute: Duration, now: Duration) -> Duration {
        let minutes = now.saturating_sub(self.at).as_secs_f64() / MINUTE.as_secs_f64();
        self.time.saturating_sub(per_minute.mul_f64(minutes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_namespace_waits_until_enough_time_is_given_back_and_others_do_not() {
        let mut budgets = TimeBudgets::new(seconds(20));
        // The time that is used, when, and how long the namespace waits at another time.
        let rows = [
            (0, 0, 0, None),
            (19, 0, 0, None),
            (11, 0, 0, Some(30)),
            (0, 0, 15, Some(15)),
            (0, 0, 31, None),
            (40, 60, 60, Some(90)),
            (0, 60, 151, None),
        ];
        for (time, at, now, expected) in rows {
            budgets.charge("slow", seconds(time), seconds(at));
            let wait = budgets.wait("slow", seconds(now));
            assert_eq!(wait.map(|wait| wait.as_secs()), expected, "{time} s at {at} s, now {now} s");
            assert_eq!(budgets.wait("other", seconds(now)), None);
        }
    }

    #[test]
    fn namespaces_that_have_used_nothing_for_long_are_forgotten() {
        let mut budgets = TimeBudgets::new(seconds(20));
        budgets.charge("old", seconds(10), seconds(0));
        budgets.charge("new", seconds(1), seconds(31));
        assert_eq!(budgets.used.keys().collect::<Vec<_>>(), ["new"]);
    }

    #[test]
    fn a_caller_that_has_waited_may_go_on() {
        let mut budgets = TimeBudgets::new(seconds(7));
        budgets.charge("slow", seconds(23), seconds(0));
        let wait = budgets.wait("slow", seconds(0)).unwrap();
        assert_eq!(budgets.wait("slow", wait), None);
    }
}
