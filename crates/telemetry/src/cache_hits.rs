use std::sync::atomic::{AtomicU64, Ordering};

/// How often a cache had the answer.
#[derive(Debug, Default)]
pub struct Hits {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Hits {
    pub fn note(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Hits and misses.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}
