//! When Syncs were applied last, and which have to be applied again at once.

use std::collections::HashMap;

use chandler_core::sync::LastRun;

use crate::locks::Mutex;

/// The last runs of all Syncs, by uid.
#[derive(Debug, Default)]
pub struct Runs(Mutex<HashMap<String, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    last: Option<LastRun>,
    /// Number of requests to apply the Sync again.
    requests: u64,
    /// Whether there was a request since the last run has started.
    is_requested: bool,
}

/// The number of requests when a run has started.
#[derive(Clone, Copy, Debug)]
pub struct Started(u64);

impl Runs {
    /// Lets the next reconcile apply a Sync, whenever it was applied last. A run that is in progress may
    /// have read what has changed since, so it is repeated.
    pub fn request(&self, uid: &str) {
        let mut runs = self.0.lock();
        let entry = runs.entry(uid.to_owned()).or_default();
        *entry = Entry { last: None, requests: entry.requests + 1, is_requested: true };
    }

    /// Forgets the last run.
    pub fn forget(&self, uid: &str) {
        if let Some(entry) = self.0.lock().get_mut(uid) {
            entry.last = None;
        }
    }

    /// Forgets a Sync that was deleted.
    pub fn remove(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Returns what [`Self::record`] needs to notice requests that arrive during a run.
    pub fn start(&self, uid: &str) -> Started {
        Started(self.0.lock().get(uid).map_or(0, |entry| entry.requests))
    }

    /// Records a run, unless it has to be repeated. `next` gets the run before it.
    pub fn record(&self, uid: &str, started: Started, next: impl FnOnce(Option<&LastRun>) -> LastRun) {
        let mut runs = self.0.lock();
        let entry = runs.entry(uid.to_owned()).or_default();
        if entry.requests == started.0 {
            entry.last = Some(next(entry.last.as_ref()));
            entry.is_requested = false;
        }
    }

    /// Returns the last run. `recorded` returns it after a restart.
    pub fn last_or(&self, uid: &str, recorded: impl FnOnce() -> Option<LastRun>) -> Option<LastRun> {
        let mut runs = self.0.lock();
        let entry = runs.entry(uid.to_owned()).or_default();
        if entry.last.is_none() && !entry.is_requested {
            entry.last = recorded();
        }
        entry.last.clone()
    }

    /// Returns the last run in this process.
    pub fn last(&self, uid: &str) -> Option<LastRun> {
        self.0.lock().get(uid)?.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::poll::LastPoll;
    use jiff::Timestamp;

    use super::*;

    fn run(revision: &str) -> LastRun {
        let poll = LastPoll::after(None, Some(1), None, Timestamp::UNIX_EPOCH);
        LastRun { revision: revision.to_owned(), resumed: None, poll }
    }

    #[test]
    fn a_request_during_a_run_repeats_it() {
        let runs = Runs::default();
        let recorded = || Some(run("recorded"));
        assert_eq!(runs.last_or("a", recorded), recorded(), "after a restart");
        let started = runs.start("a");
        runs.record("a", started, |_| run("r1"));
        assert_eq!(runs.last("a"), Some(run("r1")));

        let started = runs.start("a");
        runs.request("a");
        runs.record("a", started, |_| run("r2"));
        assert_eq!((runs.last("a"), runs.last_or("a", recorded)), (None, None), "it is due");
        let started = runs.start("a");
        runs.record("a", started, |before| {
            assert_eq!(before, None);
            run("r3")
        });
        assert_eq!(runs.last_or("a", || None), Some(run("r3")));

        runs.forget("a");
        assert_eq!(runs.last_or("a", recorded), recorded(), "nothing was requested");
        runs.remove("a");
        assert_eq!(runs.last("a"), None);
    }
}
