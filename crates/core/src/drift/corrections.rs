//! Limits how often an object is corrected that another client keeps changing.

use std::time::Duration;

use jiff::Timestamp;

/// So many corrections within [`WINDOW`] mean that another client keeps changing the object.
const FREQUENT: usize = 5;
const WINDOW: Duration = Duration::from_mins(10);
/// The wait before the next correction. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// The last corrections of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    /// When they were, oldest first, at most [`FREQUENT`].
    times: Vec<Timestamp>,
    /// How many of them were too many in a row.
    excess: u32,
}

impl Corrections {
    /// Takes in a correction.
    pub fn record(&mut self, at: Timestamp) {
        let follows = self.excess > 0 && self.is_recent(at);
        if self.times.len() == FREQUENT {
            self.times.remove(0);
        }
        self.times.push(at);
        let is_frequent = self.times.len() == FREQUENT
            && self.times.first().is_some_and(|first| elapsed(*first, at) <= WINDOW);
        self.excess = if is_frequent || follows { self.excess.saturating_add(1) } else { 0 };
    }

    /// Returns whether a correction at this time would follow the last one so soon that they count together.
    pub fn is_recent(&self, at: Timestamp) -> bool {
        self.times.last().is_some_and(|last| elapsed(*last, at) <= self.wait() + WINDOW)
    }

    /// Returns until when the object is not compared, because another client keeps changing it.
    pub fn held_until(&self) -> Option<Timestamp> {
        let last = self.times.last().filter(|_| self.excess > 0)?;
        last.checked_add(self.wait()).ok()
    }

    fn wait(&self) -> Duration {
        match self.excess {
            0 => Duration::ZERO,
            excess => FIRST_WAIT.saturating_mul(1 << (excess - 1).min(16)).min(LONGEST_WAIT),
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
    fn frequent_corrections_become_rare() {
        // The seconds of corrections, and how long the next one waits after the last.
        let rows: [(&[i64], Option<i64>); 8] = [
            (&[], None),
            (&[0, 1, 2, 3], None),
            (&[0, 1, 2, 3, 4], Some(10)),
            (&[0, 150, 300, 450, 600], Some(10)),
            (&[0, 150, 300, 450, 601], None),
            (&[0, 1, 2, 3, 4, 14, 34], Some(40)),
            (&[0, 1, 2, 3, 4, 14, 34, 74, 154, 314, 634, 1234, 1834, 2434], Some(600)),
            // The other client has stopped for a while.
            (&[0, 1, 2, 3, 4, 14, 34, 34 + 40 + 601], None),
        ];
        for (seconds, wait) in rows {
            let mut corrections = Corrections::default();
            for second in seconds {
                corrections.record(Timestamp::from_second(*second).unwrap());
            }
            let expected = wait.map(|wait| Timestamp::from_second(seconds.last().unwrap() + wait).unwrap());
            assert_eq!(corrections.held_until(), expected, "{seconds:?}");
        }
    }
}
