//! The same question asked by many is asked once, and its answer is true for a while.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chandler_telemetry::CacheHits;

use crate::SourceError;

/// An answer that nobody has asked for since is forgotten; until then it can be confirmed instead of given anew.
const KEPT: Duration = Duration::from_hours(1);
/// With more answers than this, those that are not fresh are forgotten at once.
const MANY: usize = 1024;

type Slot<V> = Arc<tokio::sync::Mutex<Option<Known<V>>>>;

struct Known<V> {
    at: Instant,
    /// How long it is true.
    fresh: Duration,
    answer: Result<V, SourceError>,
    /// Failures in between do not make it worthless.
    last_good: Option<V>,
}

impl<V> Known<V> {
    /// How long it serves those who want answers of at most this age.
    fn lasts(&self, age: Duration) -> Duration {
        if self.answer.is_ok() { self.fresh.min(age) } else { self.fresh }
    }
}

/// Answers by question. A failure is shared with those who waited for it, and is true for as long as it took to find
/// out: a source that hangs must not hold everyone who asks, again and again.
pub(crate) struct Shared<K, V> {
    fresh: Duration,
    slots: Mutex<HashMap<K, Slot<V>>>,
    pub hits: CacheHits,
}

impl<K, V> std::fmt::Debug for Shared<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Shared<K, V> {
    /// Answers are true for `fresh`.
    pub fn new(fresh: Duration) -> Self {
        Self { fresh, slots: Mutex::default(), hits: CacheHits::default() }
    }

    /// The answer: a fresh one, that of whoever is asking already, or else what `work` makes of the last good one.
    pub async fn get<F>(&self, key: K, work: impl FnOnce(Option<V>) -> F) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        self.get_within(self.fresh, key, work).await
    }

    /// As [`Shared::get`], for who needs an answer that is not older than `age`.
    pub async fn get_within<F>(
        &self,
        age: Duration,
        key: K,
        work: impl FnOnce(Option<V>) -> F,
    ) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        let asked = Instant::now();
        let slot = self.slot(key);
        let mut known = slot.lock().await;
        let serves = |known: &&Known<V>| known.at >= asked || known.at.elapsed() < known.lasts(age);
        let fresh = known.as_ref().filter(serves);
        self.hits.record(fresh.is_some());
        if let Some(known) = fresh {
            return known.answer.clone();
        }
        let last = known.as_ref().and_then(|known| known.last_good.clone());
        let started = Instant::now();
        let answer = work(last.clone()).await;
        let fresh = if answer.is_ok() { self.fresh } else { started.elapsed().min(self.fresh) };
        let last_good = answer.as_ref().ok().cloned().or(last);
        *known = Some(Known { at: Instant::now(), fresh, answer: answer.clone(), last_good });
        answer
    }

    /// Whether there is an answer that can be confirmed instead of given anew.
    pub async fn knows(&self, key: &K) -> bool {
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        let Some(slot) = slot else { return false };
        slot.lock().await.as_ref().is_some_and(|known| known.last_good.is_some())
    }

    fn slot(&self, key: K) -> Slot<V> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = if slots.len() >= MANY { self.fresh } else { KEPT.max(self.fresh) };
        slots.retain(|_, slot| !is_older(slot, kept));
        slots.entry(key).or_default().clone()
    }
}

fn is_older<V>(slot: &Slot<V>, age: Duration) -> bool {
    let unused = Arc::strong_count(slot) == 1;
    unused && slot.try_lock().is_ok_and(|known| known.as_ref().is_none_or(|known| known.at.elapsed() >= age))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn many_ask_once_and_failures_are_kept_for_as_long_as_they_took() {
        let shared = Shared::<&str, u32>::new(Duration::from_mins(1));
        let asked = AtomicU32::new(0);
        let ask = |good: bool| {
            let (shared, asked) = (&shared, &asked);
            shared.get("key", move |_| async move {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                if good {
                    tokio::task::yield_now().await;
                    return Ok(number);
                }
                // So long that the next question comes before the failure is forgotten.
                tokio::time::sleep(Duration::from_millis(400)).await;
                Err(SourceError::Store("full".to_owned()))
            })
        };
        let failed = join_all((0..50).map(|_| ask(false))).await;
        assert!(failed.iter().all(Result::is_err));
        assert_eq!(asked.load(Ordering::Relaxed), 1, "those who waited share the failure");
        let kept = Instant::now();
        assert!(ask(true).await.is_err(), "for as long as it took");
        while ask(true).await.is_err() {
            assert!(kept.elapsed() < Duration::from_secs(20), "and no longer");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        let good = join_all((0..50).map(|_| ask(true))).await;
        assert!(good.iter().all(|answer| matches!(answer, Ok(1))), "{good:?}");
        assert!(matches!(ask(true).await, Ok(1)), "still fresh");
        let anew = shared.get_within(Duration::ZERO, "key", |last| async move { Ok(last.unwrap() + 10) });
        assert!(matches!(anew.await, Ok(11)), "who needs a newer answer gets one");
    }
}
