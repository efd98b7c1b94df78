//! Since when objects wait for a pass.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::{Duration, Instant},
};

use prometheus_client::metrics::gauge::Gauge;

use crate::sync::{Mutex, MutexGuard};

/// Namespace and name.
pub type Waiter = (Option<String>, String);

/// Objects of one kind. Holds only what waits, so it is as large as the queue.
#[derive(Debug)]
pub struct Waiting {
    since: Mutex<HashMap<Waiter, Instant>>,
    depth: Gauge,
}

impl Waiting {
    pub fn new(depth: Gauge) -> Self {
        Self { since: Mutex::default(), depth }
    }

    /// The object is asked for; one that waits already goes on waiting.
    pub fn begin(&self, object: Waiter) {
        if let Entry::Vacant(entry) = self.lock().entry(object) {
            entry.insert(Instant::now());
            self.depth.inc();
        }
    }

    /// The object waits no more. Returns how long it has. None: nobody asked for it.
    pub fn end(&self, object: &Waiter) -> Option<Duration> {
        let since = self.lock().remove(object)?;
        self.depth.dec();
        Some(since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Waiter, Instant>> {
        self.since.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_waits_once_and_its_wait_ends_once() {
        let depth = Gauge::default();
        let waiting = Waiting::new(depth.clone());
        let object = (Some("fleet".to_owned()), "a".to_owned());
        waiting.begin(object.clone());
        std::thread::sleep(Duration::from_millis(5));
        waiting.begin(object.clone());
        assert_eq!(depth.get(), 1);
        assert!(waiting.end(&object).unwrap() >= Duration::from_millis(5), "since it was asked for first");
        assert_eq!((waiting.end(&object), depth.get()), (None, 0));
    }
}
