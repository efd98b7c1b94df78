//! A cache that runs concurrent requests for the same key only once.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chandler_telemetry::CacheHits;

use crate::SourceError;

/// An unused result is removed after this time. Until then, `work` can revalidate it instead of fetching it again.
const IDLE_RETENTION: Duration = Duration::from_hours(1);
/// With at least this number of results, expired results are removed at once.
const PRUNE_THRESHOLD: usize = 1024;

/// A failure is not cached longer.
const MAX_FAILURE_TTL: Duration = Duration::from_mins(1);
/// Old results are removed whenever one of this number of results could have been replaced, so that the cost of a call does not
/// depend on the number of results.
const CALLS_PER_CLEANING: usize = 16;
/// Size of a result without its value, so that many small ones are limited, too.
const ENTRY_BYTES: usize = 512;

type Slot<V> = Arc<tokio::sync::Mutex<Option<CachedResult<V>>>>;

struct CachedResult<V> {
    at: Instant,
    ttl: Duration,
    result: Result<V, SourceError>,
    /// The value of the last success. Later failures do not clear it.
    last_success: Option<V>,
    /// The size of the key and of `last_success`, if the cache has a limit.
    size: usize,
}

/// Limits the size of the keys and values in a cache.
struct SizeLimit<K, V> {
    bytes: usize,
    /// Returns the approximate size of a key in bytes.
    key_size: fn(&K) -> usize,
    /// Returns the approximate size of a value in bytes.
    value_size: fn(&V) -> usize,
}

impl<V> CachedResult<V> {
    /// Returns how long the result is valid for callers that accept values up to `max_age`. The age of a failure is only limited
    /// by its own TTL.
    fn valid_for(&self, max_age: Duration) -> Duration {
        if self.result.is_ok() { self.ttl.min(max_age) } else { self.ttl }
    }

    /// Returns whether the result is also that of a namespace. That another namespace has no free slot says nothing about it.
    fn is_for(&self, namespace: Option<&str>) -> bool {
        match &self.result {
            Err(SourceError::Busy { namespace: busy }) => namespace == Some(busy.as_str()),
            _ => true,
        }
    }
}

/// Caches results by key. Callers that wait for the same key share its result, also if it is a failure. A failure is cached for
/// as long as it took to occur, but not longer than a minute, so that a hanging source does not delay every caller again.
pub(crate) struct SingleFlightCache<K, V> {
    ttl: Duration,
    /// How long an unused result is kept.
    retention: Duration,
    /// `None` means that only the age of results limits the cache.
    limit: Option<SizeLimit<K, V>>,
    slots: Mutex<Slots<K, V>>,
    pub hits: CacheHits,
}

struct Slots<K, V> {
    by_key: HashMap<K, Slot<V>>,
    /// The number of calls since old results were removed.
    calls: usize,
}

impl<K, V> Default for Slots<K, V> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), calls: 0 }
    }
}

impl<K, V> std::fmt::Debug for SingleFlightCache<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleFlightCache").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlightCache<K, V> {
    /// Creates a cache whose values expire after `ttl`.
    pub fn new(ttl: Duration) -> Self {
        let retention = IDLE_RETENTION.max(ttl);
        Self { ttl, retention, limit: None, slots: Mutex::default(), hits: CacheHits::default() }
    }

    /// Creates a cache whose values expire after `ttl`. Nothing revalidates them, so they are not kept for longer.
    pub fn without_revalidation(ttl: Duration) -> Self {
        Self { retention: ttl, ..Self::new(ttl) }
    }

    /// Creates a cache whose values expire after `ttl`. If keys and values have more than `bytes` together, the oldest that are
    /// not in use are removed.
    pub fn with_size_limit(
        ttl: Duration,
        bytes: usize,
        key_size: fn(&K) -> usize,
        value_size: fn(&V) -> usize,
    ) -> Self {
        Self { limit: Some(SizeLimit { bytes, key_size, value_size }), ..Self::new(ttl) }
    }

    /// Returns the cached result, waits for the result of a concurrent caller, or calls `work` with the last successful value.
    pub async fn get<F>(&self, key: K, work: impl FnOnce(Option<V>) -> F) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        self.get_with_max_age(self.ttl, key, work).await
    }

    /// Does the same as [`SingleFlightCache::get`], but does not return a cached value that is older than `max_age`.
    pub async fn get_with_max_age<F>(
        &self,
        max_age: Duration,
        key: K,
        work: impl FnOnce(Option<V>) -> F,
    ) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        self.get_or_run(None, max_age, key, work).await
    }

    /// Does the same as [`SingleFlightCache::get_with_max_age`] for `work` that needs a slot of a namespace. Callers of other
    /// namespaces do not share the failure to get one.
    pub async fn get_for_namespace<F>(
        &self,
        namespace: &str,
        max_age: Duration,
        key: K,
        work: impl FnOnce(Option<V>) -> F,
    ) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        self.get_or_run(Some(namespace), max_age, key, work).await
    }

    async fn get_or_run<F>(
        &self,
        namespace: Option<&str>,
        max_age: Duration,
        key: K,
        work: impl FnOnce(Option<V>) -> F,
    ) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        let requested = Instant::now();
        let key_size = self.limit.as_ref().map_or(0, |limit| (limit.key_size)(&key));
        let slot = self.slot(key);
        let mut cached = slot.lock().await;
        let is_valid = |cached: &&CachedResult<V>| {
            let is_recent = cached.at >= requested || cached.at.elapsed() < cached.valid_for(max_age);
            is_recent && cached.is_for(namespace)
        };
        let valid = cached.as_ref().filter(is_valid);
        self.hits.record(valid.is_some());
        if let Some(cached) = valid {
            return cached.result.clone();
        }
        let last = cached.as_ref().and_then(|cached| cached.last_success.clone());
        let started = Instant::now();
        let result = work(last.clone()).await;
        let ttl = match &result {
            Ok(_) => self.ttl,
            // The source was not asked.
            Err(SourceError::Busy { .. }) => Duration::ZERO,
            Err(_) => started.elapsed().min(self.ttl).min(MAX_FAILURE_TTL),
        };
        let last_success = result.as_ref().ok().cloned().or(last);
        let value = self.limit.as_ref().zip(last_success.as_ref());
        let value_size = value.map_or(0, |(limit, value)| (limit.value_size)(value));
        let size = value_size.saturating_add(key_size).saturating_add(ENTRY_BYTES);
        *cached = Some(CachedResult { at: Instant::now(), ttl, result: result.clone(), last_success, size });
        result
    }

    /// Returns whether a call with this key and `max_age` returns a cached result, or that of a concurrent caller.
    pub fn is_available(&self, max_age: Duration, key: &K) -> bool {
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).by_key.get(key).cloned();
        let Some(slot) = slot else { return false };
        let is_valid = |cached: &CachedResult<V>| cached.at.elapsed() < cached.valid_for(max_age);
        slot.try_lock().map_or(true, |cached| cached.as_ref().is_some_and(is_valid))
    }

    /// Returns whether there is a value that `work` can revalidate.
    pub async fn has_value(&self, key: &K) -> bool {
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).by_key.get(key).cloned();
        let Some(slot) = slot else { return false };
        slot.lock().await.as_ref().is_some_and(|cached| cached.last_success.is_some())
    }

    fn slot(&self, key: K) -> Slot<V> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.by_key.entry(key).or_default().clone();
        slots.calls += 1;
        if slots.calls > slots.by_key.len() / CALLS_PER_CLEANING {
            slots.calls = 0;
            self.clean(&mut slots.by_key);
        }
        slot
    }

    /// Removes old results. Those in use, such as that of the current caller, stay.
    fn clean(&self, slots: &mut HashMap<K, Slot<V>>) {
        let retention = if slots.len() >= PRUNE_THRESHOLD { self.ttl } else { self.retention };
        slots.retain(|_, slot| !is_older(slot, retention));
        if let Some(limit) = &self.limit {
            remove_oldest(slots, limit.bytes);
        }
    }
}

/// Removes the oldest unused results until the others have at most this size together.
fn remove_oldest<K: Eq + Hash, V>(slots: &mut HashMap<K, Slot<V>>, limit: usize) {
    let mut total = 0_usize;
    let mut unused = Vec::new();
    for slot in slots.values() {
        let Ok(cached) = slot.try_lock() else { continue };
        let Some(cached) = &*cached else { continue };
        total = total.saturating_add(cached.size);
        if Arc::strong_count(slot) == 1 {
            unused.push((cached.at, cached.size));
        }
    }
    if total <= limit {
        return;
    }
    unused.sort_unstable();
    let mut last_removed = None;
    for (at, size) in unused {
        if total <= limit {
            break;
        }
        total -= size;
        last_removed = Some(at);
    }
    let is_removed = |cached: &CachedResult<V>| last_removed.is_some_and(|last| cached.at <= last);
    slots.retain(|_, slot| {
        let unused = Arc::strong_count(slot) == 1;
        !(unused && slot.try_lock().is_ok_and(|cached| cached.as_ref().is_some_and(is_removed)))
    });
}

fn is_older<V>(slot: &Slot<V>, age: Duration) -> bool {
    let unused = Arc::strong_count(slot) == 1;
    unused
        && slot.try_lock().is_ok_and(|cached| cached.as_ref().is_none_or(|cached| cached.at.elapsed() >= age))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_call_and_failures_are_cached_as_long_as_they_took() {
        let cache = SingleFlightCache::<&str, u32>::new(Duration::from_mins(1));
        let calls = AtomicU32::new(0);
        let get = |succeed: bool| {
            let (cache, calls) = (&cache, &calls);
            cache.get("key", move |_| async move {
                let number = calls.fetch_add(1, Ordering::Relaxed);
                if succeed {
                    tokio::task::yield_now().await;
                    return Ok(number);
                }
                // Long enough that the next call finds the failure in the cache.
                tokio::time::sleep(Duration::from_millis(400)).await;
                Err(SourceError::Store("full".to_owned()))
            })
        };
        let failed = join_all((0..50).map(|_| get(false))).await;
        assert!(failed.iter().all(Result::is_err));
        assert_eq!(calls.load(Ordering::Relaxed), 1, "callers that waited share the failure");
        let since = Instant::now();
        assert!(get(true).await.is_err(), "the failure is cached as long as it took");
        while get(true).await.is_err() {
            assert!(since.elapsed() < Duration::from_secs(20), "and not longer");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let results = join_all((0..50).map(|_| get(true))).await;
        assert!(results.iter().all(|result| matches!(result, Ok(1))), "{results:?}");
        assert!(matches!(get(true).await, Ok(1)), "still cached");
        let is_available = |max_age, key| cache.is_available(max_age, &key);
        assert!(
            is_available(Duration::from_mins(1), "key") && !is_available(Duration::from_mins(1), "other")
        );
        assert!(!is_available(Duration::ZERO, "key"));
        let running = cache.get_with_max_age(Duration::ZERO, "key", |_| async {
            assert!(is_available(Duration::ZERO, "key"), "callers wait for this call");
            Ok(1)
        });
        assert!(running.await.is_ok());
        let newer =
            cache.get_with_max_age(Duration::ZERO, "key", |last| async move { Ok(last.unwrap() + 10) });
        assert!(matches!(newer.await, Ok(11)), "a caller that needs a newer value gets one");
    }

    #[tokio::test]
    async fn only_callers_of_the_same_namespace_share_that_it_has_no_free_slot() {
        let cache = SingleFlightCache::<&str, u32>::new(Duration::from_mins(1));
        let calls = AtomicU32::new(0);
        let get = |namespace: &'static str| {
            let (cache, calls) = (&cache, &calls);
            cache.get_for_namespace(namespace, Duration::ZERO, "key", move |_| async move {
                calls.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                let busy = SourceError::Busy { namespace: namespace.to_owned() };
                if namespace == "busy" { Err(busy) } else { Ok(1) }
            })
        };
        let results = join_all(["busy", "busy", "other", "other"].map(get)).await;
        let is_busy = results.iter().map(|result| matches!(result, Err(SourceError::Busy { .. })));
        assert_eq!(is_busy.collect::<Vec<_>>(), [true, true, false, false]);
        assert_eq!(calls.load(Ordering::Relaxed), 2, "each namespace calls once");
    }

    #[tokio::test]
    async fn the_oldest_results_are_removed_when_all_together_are_too_large() {
        let (ttl, bytes) = (Duration::from_mins(1), 2 * (ENTRY_BYTES + 1 + 100));
        let cache =
            SingleFlightCache::<&str, Vec<u8>>::with_size_limit(ttl, bytes, |key| key.len(), Vec::len);
        let calls = AtomicU32::new(0);
        let get = |key: &'static str| {
            let (cache, calls) = (&cache, &calls);
            async move {
                let work = move |_| async move {
                    calls.fetch_add(1, Ordering::Relaxed);
                    Ok(vec![0; 100])
                };
                assert_eq!(cache.get(key, work).await.unwrap().len(), 100);
                calls.load(Ordering::Relaxed)
            }
        };
        assert_eq!((get("a").await, get("b").await, get("a").await), (1, 2, 2), "both fit");
        // A result is counted from the next call on.
        assert_eq!((get("c").await, get("c").await), (3, 3));
        assert_eq!((get("b").await, get("c").await), (3, 3), "the newer ones stay");
        assert_eq!(get("a").await, 4, "the oldest was removed");
    }

    #[tokio::test]
    async fn results_that_nothing_revalidates_are_removed_when_they_expire() {
        let ttl = Duration::from_millis(50);
        let caches = [
            (SingleFlightCache::<&str, u32>::new(ttl), 2),
            (SingleFlightCache::without_revalidation(ttl), 1),
        ];
        for (cache, kept) in caches {
            cache.get("a", |_| async { Ok(1) }).await.unwrap();
            tokio::time::sleep(2 * ttl).await;
            cache.get("b", |_| async { Ok(2) }).await.unwrap();
            assert_eq!(cache.slots.lock().unwrap().by_key.len(), kept);
        }
    }
}
