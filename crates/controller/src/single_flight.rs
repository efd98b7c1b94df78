//! A cache of reads: concurrent requests for one key share one read, and its result serves later ones for a while.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::locks::Mutex;

/// How long a Secret is cached: long enough for a fleet that reads it at the same time, and shorter than a user needs
/// to fix it.
pub const MOMENT: Duration = Duration::from_secs(3);

type Read<V> = Arc<tokio::sync::Mutex<Option<(Instant, V)>>>;

/// The results of reads, by key. Failures are not cached.
pub struct SingleFlight<K, V> {
    lifespan: Duration,
    read: Mutex<HashMap<K, Read<V>>>,
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Creates a cache whose entries expire after `lifespan`.
    pub fn new(lifespan: Duration) -> Self {
        Self { lifespan, read: Mutex::default() }
    }

    /// Returns the cached value of `key`, or runs `read`. Concurrent calls with the same key wait for its result.
    pub async fn get<E>(&self, key: &K, read: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let slot = self.slot(key);
        let mut last = slot.lock().await;
        if let Some((_, value)) = last.as_ref().filter(|(at, _)| at.elapsed() < self.lifespan) {
            return Ok(value.clone());
        }
        let value = read.await?;
        *last = Some((Instant::now(), value.clone()));
        Ok(value)
    }

    /// Lets the next call read again.
    pub fn forget(&self, key: &K) {
        self.read.lock().remove(key);
    }

    fn slot(&self, key: &K) -> Read<V> {
        let mut read = self.read.lock();
        // An expired value that no request waits for is dropped: it may be secret.
        read.retain(|_, one| {
            Arc::strong_count(one) > 1
                || one
                    .try_lock()
                    .is_ok_and(|last| last.as_ref().is_some_and(|(at, _)| at.elapsed() < self.lifespan))
        });
        read.entry(key.clone()).or_default().clone()
    }
}

impl<K: Clone + Eq + Hash, V: Clone, E: Clone> SingleFlight<K, Result<V, E>> {
    /// Returns the result of a read that begins after this call, so that it contains all changes before. Calls that wait for a
    /// read under way share the next one, even if it fails. For reads whose failure is the same for all callers.
    pub async fn get_fresh(&self, key: &K, read: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let called = Instant::now();
        let slot = self.slot(key);
        let mut last = slot.lock().await;
        if let Some((_, result)) = last.as_ref().filter(|(begun, _)| *begun >= called) {
            return result.clone();
        }
        let begun = Instant::now();
        let result = read.await;
        *last = Some((begun, result.clone()));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_reads_of_one_key_are_one_and_failures_are_not_cached() {
        let cache = SingleFlight::new(Duration::from_mins(1));
        let reads = AtomicUsize::new(0);
        let read = |result: Result<u32, ()>| {
            let reads = &reads;
            async move {
                reads.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                result
            }
        };
        assert_eq!(cache.get(&"a", read(Err(()))).await, Err(()));
        let (one, other) = tokio::join!(cache.get(&"a", read(Ok(1))), cache.get(&"a", read(Ok(2))));
        assert_eq!((one, other), (Ok(1), Ok(1)));
        assert_eq!(cache.get(&"b", read(Ok(3))).await, Ok(3));
        assert_eq!(reads.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn calls_that_wait_for_a_read_share_the_next_one() {
        let cache = SingleFlight::<_, Result<u32, ()>>::new(Duration::ZERO);
        let reads = AtomicUsize::new(0);
        let read = |result: Result<u32, ()>| {
            let reads = &reads;
            async move {
                reads.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                result
            }
        };
        let all = tokio::join!(
            cache.get_fresh(&"a", read(Ok(1))),
            cache.get_fresh(&"a", read(Err(()))),
            cache.get_fresh(&"a", read(Ok(2))),
        );
        assert_eq!(all, (Ok(1), Err(()), Err(())), "the first read began before the other calls");
        assert_eq!(cache.get_fresh(&"a", read(Ok(3))).await, Ok(3));
        assert_eq!(reads.load(Ordering::Relaxed), 3);
    }
}
