//! Which indexes changed, so that whoever follows the newest version need not wait for its own next look.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use reqwest::Url;
use tokio::sync::watch;

/// Counts the changes of each index, and of all together.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    by_home: Mutex<HashMap<Url, u64>>,
    all: watch::Sender<u64>,
}

impl Changes {
    pub fn note(&self, home: &Url) {
        *self.lock().entry(home.clone()).or_default() += 1;
        self.all.send_modify(|count| *count += 1);
    }

    pub fn count(&self, home: &Url) -> u64 {
        self.lock().get(home).copied().unwrap_or_default()
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.all.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Url, u64>> {
        self.by_home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
