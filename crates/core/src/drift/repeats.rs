//! Limits how often something is repeated, such as the correction of an object that another client keeps changing.

use std::time::Duration;

use jiff::Timestamp;

/// When repeats have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// So many repeats within `window` are too many.
    count: usize,
    window: Duration,
    /// The wait before the next repeat. It doubles with each further one.
    first_wait: Duration,
    longest_wait: Duration,
}

/// Corrections of an object: if there are more, another client keeps changing it.
pub const CORRECTIONS: Limit = Limit {
    count: 5,
    window: Duration::from_mins(10),
    first_wait: Duration::from_secs(10),
    longest_wait: Duration::from_mins(10),
};

/// Comparisons of an object that were not followed by a correction: it changes often, but as it may.
pub const COMPARISONS: Limit = Limit { count: 6, window: Duration::from_mins(1), ..CORRECTIONS };

/// Writes of a status in which only the digest has changed, which is needed after a restart only.
pub const DIGEST_WRITES: Limit = Limit {
    count: 5,
    window: Duration::from_mins(1),
    first_wait: Duration::from_mins(1),
    longest_wait: Duration::from_mins(1),
};

/// The last repeats of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeats {
    limit: Limit,
    /// When they were, oldest first, at most `limit.count`.
    times: Vec<Timestamp>,
    /// How many of them were too many in a row.
    excess: u32,
}

impl Repeats {
    pub fn new(limit: Limit) -> Self {
        Self { limit, times: Vec::new(), excess: 0 }
    }

    /// Takes in a repeat.
    pub fn record(&mut self, at: Timestamp) {
        let follows = self.excess > 0 && self.is_recent(at);
        if self.times.len() == self.limit.count {
            self.times.remove(0);
        }
        self.times.push(at);
        let is_frequent = self.times.len() == self.limit.count
            && self.times.first().is_some_and(|first| elapsed(*first, at) <= self.limit.window);
        self.excess = if is_frequent || follows { self.excess.saturating_add(1) } else { 0 };
    }

    /// Returns whether a repeat at this time would follow the last one so soon that they count together.
    pub fn is_recent(&self, at: Timestamp) -> bool {
        self.times.last().is_some_and(|last| elapsed(*last, at) <= self.wait() + self.limit.window)
    }

    /// Returns until when the next repeat has to wait. `None` means that it does not have to.
    pub fn held_until(&self) -> Option<Timestamp> {
        let last = self.times.last().filter(|_| self.excess > 0)?;
        last.checked_add(self.wait()).ok()
    }

    fn wait(&self) -> Duration {
        let Limit { first_wait, longest_wait, .. } = self.limit;
        match self.excess {
            0 => Duration::ZERO,
            excess => first_wait.saturating_mul(1 << (excess - 1).min(16)).min(longest_wait),
        }
    }
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_repeats_become_rare() {
        // The limit, the seconds of repeats, and how long the next one waits after the last.
        let rows: [(Limit, &[i64], Option<i64>); 14] = [
            (CORRECTIONS, &[], None),
            (CORRECTIONS, &[0, 1, 2, 3], None),
            (CORRECTIONS, &[0, 1, 2, 3, 4], Some(10)),
            (CORRECTIONS, &[0, 150, 300, 450, 600], Some(10)),
            (CORRECTIONS, &[0, 150, 300, 450, 601], None),
            (CORRECTIONS, &[0, 1, 2, 3, 4, 14, 34], Some(40)),
            (CORRECTIONS, &[0, 1, 2, 3, 4, 14, 34, 74, 154, 314, 634, 1234, 1834, 2434], Some(600)),
            // The other client has stopped for a while.
            (CORRECTIONS, &[0, 1, 2, 3, 4, 14, 34, 34 + 40 + 601], None),
            (COMPARISONS, &[0, 1, 2, 3, 4], None),
            (COMPARISONS, &[0, 1, 2, 3, 4, 60], Some(10)),
            (COMPARISONS, &[0, 1, 2, 3, 4, 61], None),
            (COMPARISONS, &[0, 1, 2, 3, 4, 5, 15], Some(20)),
            (DIGEST_WRITES, &[0, 1, 2, 3, 4], Some(60)),
            (DIGEST_WRITES, &[0, 1, 2, 3, 4, 64, 124], Some(60)),
        ];
        for (limit, seconds, wait) in rows {
            let mut repeats = Repeats::new(limit);
            for second in seconds {
                repeats.record(Timestamp::from_second(*second).unwrap());
            }
            let expected = wait.map(|wait| Timestamp::from_second(seconds.last().unwrap() + wait).unwrap());
            assert_eq!(repeats.held_until(), expected, "{seconds:?}");
        }
    }
}
