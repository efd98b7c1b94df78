//! Counts changes of repository indexes, so that releases without a pinned version are reconciled before their next poll.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use reqwest::Url;
use tokio::sync::watch;

/// The number of changes of each index, and of all indexes.
#[derive(Debug, Default)]
pub(crate) struct IndexChanges {
    by_url: Mutex<HashMap<Url, u64>>,
    total: watch::Sender<u64>,
}

impl IndexChanges {
    pub fn record(&self, base_url: &Url) {
        *self.lock().entry(base_url.clone()).or_default() += 1;
        self.total.send_modify(|count| *count += 1);
    }

    pub fn count(&self, base_url: &Url) -> u64 {
        self.lock().get(base_url).copied().unwrap_or_default()
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.total.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Url, u64>> {
        self.by_url.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
