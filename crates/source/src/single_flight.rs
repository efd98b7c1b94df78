//! The same work asked for by many is done once at a time.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

/// One lock per key, forgotten when nobody holds it.
#[derive(Debug)]
pub struct SingleFlight<K> {
    locks: Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>,
}

impl<K> Default for SingleFlight<K> {
    fn default() -> Self {
        Self { locks: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash> SingleFlight<K> {
    /// Runs `work` while nobody else runs work for the same key. Look for the result of the one before first.
    pub async fn run<T>(&self, key: K, work: impl Future<Output = T>) -> T {
        let lock = self.lock().entry(key.clone()).or_default().clone();
        let result = {
            let _held = lock.lock().await;
            work.await
        };
        let mut locks = self.lock();
        // Two owners: the table and this call.
        if Arc::strong_count(&lock) <= 2 {
            locks.remove(&key);
        }
        result
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<K, Arc<tokio::sync::Mutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
