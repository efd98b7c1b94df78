//! Reads that serve all who ask for the same at the same moment.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a Secret that was read serves others. A fleet asks within a moment; a person who mends it takes longer.
pub const MOMENT: Duration = Duration::from_secs(3);

type Read<V> = Arc<tokio::sync::Mutex<Option<(Instant, V)>>>;

/// What was read a moment ago, by key. Only what was read well is kept.
pub struct Shared<K, V> {
    lifespan: Duration,
    read: Mutex<HashMap<K, Read<V>>>,
}

impl<K: Clone + Eq + Hash, V: Clone> Shared<K, V> {
    /// What is read serves others for `lifespan`.
    pub fn new(lifespan: Duration) -> Self {
        Self { lifespan, read: Mutex::default() }
    }

    /// What is known of `key`, else what `read` finds.
    pub async fn get<E>(&self, key: &K, read: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let shared = self.slot(key);
        let mut last = shared.lock().await;
        if let Some((_, value)) = last.as_ref().filter(|(at, _)| at.elapsed() < self.lifespan) {
            return Ok(value.clone());
        }
        let value = read.await?;
        *last = Some((Instant::now(), value.clone()));
        Ok(value)
    }

    fn slot(&self, key: &K) -> Read<V> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody waits for and nobody can use any more is not kept: it may be secret.
        read.retain(|_, one| {
            Arc::strong_count(one) > 1
                || one
                    .try_lock()
                    .is_ok_and(|last| last.as_ref().is_some_and(|(at, _)| at.elapsed() < self.lifespan))
        });
        read.entry(key.clone()).or_default().clone()
    }
}
