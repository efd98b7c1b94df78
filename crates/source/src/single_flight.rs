//! A cache that runs concurrent requests for the same key only once.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use chandler_telemetry::CacheHits;

use crate::{
    SourceError,
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
};

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

type Slot<V> = Arc<Flight<V>>;
/// Callers of the same key and namespace that wait for a slot. Its value is when one of them has waited without getting one.
type Gate = tokio::sync::Mutex<Option<Instant>>;

/// The result of a key, and who works on the next one.
struct Flight<V> {
    /// Locked while `work` runs, but not while it is waited for a slot of a namespace.
    running: tokio::sync::Mutex<()>,
    cached: Mutex<Option<CachedResult<V>>>,
}

impl<V> Flight<V> {
    fn lock(&self) -> MutexGuard<'_, Option<CachedResult<V>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Default for Flight<V> {
    fn default() -> Self {
        Self { running: tokio::sync::Mutex::default(), cached: Mutex::default() }
    }
}

/// Which results a caller accepts.
#[derive(Clone, Copy)]
struct Request<'a> {
    at: Instant,
    namespace: Option<&'a str>,
    max_age: Duration,
}

impl<'a> Request<'a> {
    fn now(namespace: Option<&'a str>, max_age: Duration) -> Self {
        Self { at: Instant::now(), namespace, max_age }
    }

    /// A caller that accepts no old value needs one of work that has started after its request.
    fn accepts<V>(&self, cached: &CachedResult<V>) -> bool {
        let is_new = if self.max_age.is_zero() { cached.started >= self.at } else { cached.at >= self.at };
        let is_recent = is_new || cached.at.elapsed() < cached.valid_for(self.max_age);
        is_recent && cached.is_for(self.namespace)
    }
}

struct CachedResult<V> {
    started: Instant,
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

    /// Returns whether the result is also that of a namespace. That another namespace has no free slot, or has reached a quota, says
    /// nothing about it.
    fn is_for(&self, namespace: Option<&str>) -> bool {
        match &self.result {
            Err(
                SourceError::Busy { namespace: own }
                | SourceError::QuotaExceeded { namespace: own, .. }
                | SourceError::SharedQuotaExceeded { namespace: own, .. },
            ) => namespace == Some(own.as_str()),
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
    gates: Mutex<HashMap<(K, String), Weak<Gate>>>,
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
        let (slots, gates, hits) = (Mutex::default(), Mutex::default(), CacheHits::default());
        Self { ttl, retention, limit: None, slots, gates, hits }
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
        self.get_or_run(Request::now(None, max_age), key, work).await
    }

    /// Does the same as [`SingleFlightCache::get_with_max_age`] for `work` for which the caller has a slot of a namespace. Callers
    /// of other namespaces do not share that a quota of the namespace is reached.
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
        self.get_or_run(Request::now(Some(namespace), max_age), key, work).await
    }

    /// Does the same for `work` that needs one of `slots`. It is waited for before the key is locked: callers of other namespaces do
    /// not wait for it. Of the callers of a namespace that wait for the same key, one takes a slot.
    pub async fn get_with_slot<F>(
        &self,
        slots: &NamespaceSemaphore,
        namespace: &str,
        max_age: Duration,
        key: K,
        work: impl FnOnce(Option<V>, NamespacePermit) -> F,
    ) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        let request = Request::now(Some(namespace), max_age);
        if let Some(known) = self.known(&key, request) {
            return known;
        }
        let gate = self.gate(&key, namespace);
        let mut last_busy = gate.lock().await;
        if last_busy.is_some_and(|at| at >= request.at) {
            return Err(SourceError::Busy { namespace: namespace.to_owned() });
        }
        if let Some(known) = self.known(&key, request) {
            return known;
        }
        let slot = match slots.acquire(namespace).await {
            Ok(slot) => slot,
            Err(busy) => {
                *last_busy = Some(Instant::now());
                return Err(busy);
            }
        };
        self.get_or_run(request, key, |last| work(last, slot)).await
    }

    /// Returns a cached result without waiting.
    fn known(&self, key: &K, request: Request<'_>) -> Option<Result<V, SourceError>> {
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).by_key.get(key).cloned()?;
        let known = accepted(&slot, request)?;
        self.hits.record(true);
        Some(known)
    }

    fn gate(&self, key: &K, namespace: &str) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (key.clone(), namespace.to_owned());
        if let Some(gate) = gates.get(&id).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::new(Gate::default());
        gates.insert(id, Arc::downgrade(&gate));
        gate
    }

    async fn get_or_run<F>(
        &self,
        request: Request<'_>,
        key: K,
        work: impl FnOnce(Option<V>) -> F,
    ) -> Result<V, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        let key_size = self.limit.as_ref().map_or(0, |limit| (limit.key_size)(&key));
        let slot = self.slot(key);
        let running = slot.running.lock().await;
        let known = accepted(&slot, request);
        self.hits.record(known.is_some());
        if let Some(known) = known {
            return known;
        }
        let last = slot.lock().as_ref().and_then(|cached| cached.last_success.clone());
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
        let cached =
            CachedResult { started, at: Instant::now(), ttl, result: result.clone(), last_success, size };
        *slot.lock() = Some(cached);
        drop(running);
        result
    }

    /// Returns whether there is a value that `work` can revalidate.
    pub async fn has_value(&self, key: &K) -> bool {
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).by_key.get(key).cloned();
        let Some(slot) = slot else { return false };
        let _running = slot.running.lock().await;
        let cached = slot.lock();
        cached.as_ref().is_some_and(|cached| cached.last_success.is_some())
    }

    /// Removes a result. Callers that wait for it still get it.
    pub fn remove(&self, key: &K) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).by_key.remove(key);
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
        let cached = slot.lock();
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
        !(unused && slot.lock().as_ref().is_some_and(is_removed))
    });
}

fn accepted<V: Clone>(slot: &Flight<V>, request: Request<'_>) -> Option<Result<V, SourceError>> {
    let cached = slot.lock();
    cached.as_ref().filter(|cached| request.accepts(cached)).map(|cached| cached.result.clone())
}

fn is_older<V>(slot: &Slot<V>, age: Duration) -> bool {
    let unused = Arc::strong_count(slot) == 1;
    unused && slot.lock().as_ref().is_none_or(|cached| cached.at.elapsed() >= age)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::{FutureExt as _, future::join_all};

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
                tokio::time::sleep(Duration::from_secs(2)).await;
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
        let newer =
            cache.get_with_max_age(Duration::ZERO, "key", |last| async move { Ok(last.unwrap() + 10) });
        assert!(matches!(newer.await, Ok(11)), "a caller that needs a newer value gets one");
    }

    #[tokio::test]
    async fn a_caller_that_accepts_no_old_value_does_not_share_work_that_has_started_before() {
        let cache = SingleFlightCache::<&str, u32>::new(Duration::from_mins(1));
        let calls = AtomicU32::new(0);
        let get = |max_age| {
            let (cache, calls) = (&cache, &calls);
            cache.get_with_max_age(max_age, "key", move |_| async move {
                let number = calls.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(number)
            })
        };
        let ages = [Duration::from_nanos(1), Duration::ZERO, Duration::ZERO, Duration::from_nanos(1)];
        let results = join_all(ages.map(get)).await;
        let numbers: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        assert_eq!(numbers, [0, 1, 1, 1]);
    }

    #[tokio::test]
    async fn only_callers_of_the_same_namespace_share_that_it_has_no_free_slot() {
        let cache = SingleFlightCache::<&str, u32>::new(Duration::from_mins(1));
        let calls = AtomicU32::new(0);
        let get = |namespace: &'static str| {
            let (cache, calls) = (&cache, &calls);
            cache.get_for_namespace(namespace, Duration::from_nanos(1), "key", move |_| async move {
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
    async fn a_namespace_without_a_free_slot_does_not_hold_a_key() {
        let cache = SingleFlightCache::<&str, u32>::new(Duration::from_mins(1));
        let slots = NamespaceSemaphore::new(4);
        let calls = AtomicU32::new(0);
        let get = |namespace: &'static str, key: &'static str| {
            let (cache, slots, calls) = (&cache, &slots, &calls);
            let work = move |_, slot: NamespacePermit| async move {
                let _slot = slot;
                tokio::task::yield_now().await;
                Ok(calls.fetch_add(1, Ordering::Relaxed))
            };
            Box::pin(cache.get_with_slot(slots, namespace, Duration::from_mins(1), key, work))
        };
        let mut hanging = Vec::new();
        for _ in 0..3 {
            hanging.push(slots.acquire("busy").await.unwrap());
        }
        let mut busy = Box::pin(join_all([get("busy", "key"), get("busy", "key")]));
        assert!((&mut busy).now_or_never().is_none(), "it has no free slot");
        let quiet = tokio::time::timeout(Duration::from_secs(10), get("quiet", "key")).await;
        assert!(matches!(quiet, Ok(Ok(0))), "it does not wait for the slots of others: {quiet:?}");
        let known = tokio::time::timeout(Duration::from_secs(10), get("busy", "key")).await;
        assert!(matches!(known, Ok(Ok(0))), "a known result needs no slot: {known:?}");
        hanging.pop();
        assert!(busy.await.iter().all(|result| matches!(result, Ok(0))), "it shares the result");
        let all = join_all([get("busy", "other"), get("busy", "other"), get("busy", "other")]);
        assert!(all.await.iter().all(|result| matches!(result, Ok(1))), "one slot is enough for all");
    }

    #[tokio::test]
    async fn callers_that_wait_for_a_slot_share_that_there_is_none() {
        let cache = SingleFlightCache::<&str, u32>::new(Duration::from_mins(1));
        let slots = NamespaceSemaphore::new(4);
        let get = |namespace: &'static str| {
            let work = |_, slot: NamespacePermit| async move {
                drop(slot);
                Ok(1)
            };
            Box::pin(cache.get_with_slot(&slots, namespace, Duration::from_mins(1), "key", work))
        };
        let gate = cache.gate(&"key", "busy");
        let mut first = gate.lock().await;
        let mut waiting = get("busy");
        assert!((&mut waiting).now_or_never().is_none());
        *first = Some(Instant::now());
        drop(first);
        let shared = waiting.await;
        assert!(matches!(shared, Err(SourceError::Busy { .. })), "{shared:?}");
        assert!(matches!(get("busy").await, Ok(1)), "the next one tries again");
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
