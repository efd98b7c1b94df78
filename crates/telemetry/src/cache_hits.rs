use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the hits and misses of a cache.
#[derive(Debug, Default)]
pub struct CacheHits {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl CacheHits {
    pub fn record(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of hits and of misses.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}
