//! Measures how long objects wait in a queue.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::{Duration, Instant},
};

use prometheus_client::metrics::gauge::Gauge;

use super::ObjectName;
use crate::locks::{Mutex, MutexGuard};

/// The enqueued objects of one kind, and since when they wait.
#[derive(Debug)]
pub struct Waiting {
    since: Mutex<HashMap<ObjectName, Instant>>,
    depth: Gauge,
}

impl Waiting {
    pub fn new(depth: Gauge) -> Self {
        Self { since: Mutex::default(), depth }
    }

    /// Records that an object was enqueued. Has no effect if it waits already.
    pub fn begin(&self, object: ObjectName) {
        if let Entry::Vacant(entry) = self.lock().entry(object) {
            entry.insert(Instant::now());
            self.depth.inc();
        }
    }

    /// Records that an object is reconciled. Returns how long it has waited, or `None` if it was not enqueued.
    pub fn end(&self, object: &ObjectName) -> Option<Duration> {
        let since = self.lock().remove(object)?;
        self.depth.dec();
        Some(since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, Instant>> {
        self.since.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_counted_once() {
        let depth = Gauge::default();
        let waiting = Waiting::new(depth.clone());
        let object = (Some("fleet".to_owned()), "a".to_owned());
        waiting.begin(object.clone());
        std::thread::sleep(Duration::from_millis(5));
        waiting.begin(object.clone());
        assert_eq!(depth.get(), 1);
        assert!(waiting.end(&object).unwrap() >= Duration::from_millis(5), "since it was enqueued first");
        assert_eq!((waiting.end(&object), depth.get()), (None, 0));
    }
}
