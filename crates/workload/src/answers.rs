//! Since when a cluster answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chandler_core::reachability::LONGEST_BREAK;
use jiff::Timestamp;
use tokio::time::Instant;

/// When a cluster has answered. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<Mutex<Option<Answered>>>);

#[derive(Clone, Copy, Debug)]
struct Answered {
    last: Instant,
    /// Since then, there was no long break between two answers.
    since: Timestamp,
}

impl Answers {
    /// Takes in that the cluster has answered.
    pub fn record(&self) {
        let (last, mut answered) = (Instant::now(), self.lock());
        let since = answered.filter(|before| !before.is_over(last)).map(|before| before.since);
        *answered = Some(Answered { last, since: since.unwrap_or_else(Timestamp::now) });
    }

    /// Returns when the cluster has answered last: now if it has not yet.
    pub fn last(&self) -> Instant {
        self.lock().map_or_else(Instant::now, |answered| answered.last)
    }

    /// Returns since when the cluster answers without a long break. `None` if it does not.
    pub fn since(&self) -> Option<Timestamp> {
        let answered = (*self.lock())?;
        (!answered.is_over(Instant::now())).then_some(answered.since)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Answered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answered {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) > LONGEST_BREAK
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_break_begins_the_time_again() {
        let answers = Answers::default();
        assert_eq!(answers.since(), None, "it has not answered yet");
        answers.record();
        let first = answers.since().unwrap();
        for _ in 0..3 {
            tokio::time::advance(LONGEST_BREAK).await;
            answers.record();
        }
        assert_eq!(answers.since(), Some(first));
        tokio::time::advance(LONGEST_BREAK + Duration::from_millis(1)).await;
        assert_eq!(answers.since(), None, "it does not answer now");
        answers.record();
        assert!(answers.since().unwrap() > first);
        assert_eq!(answers.last(), Instant::now());
    }
}
