//! When Syncs were applied last, and which have to be applied again at once.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chandler_core::sync::LastRun;

use crate::locks::Mutex;

/// How often a Sync is applied within [`RIVAL_WINDOW`] because others have written its objects.
const MAX_RIVAL_REQUESTS: usize = 5;
const RIVAL_WINDOW: Duration = Duration::from_mins(1);

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
    by_rivals: Window,
}

/// How often rivals have requested something since a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<Instant>,
    count: usize,
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
        *entry = Entry { last: None, requests: entry.requests + 1, is_requested: true, ..*entry };
    }

    /// Does the same for a Sync whose object another one has written. Returns whether it is applied again:
    /// if something removes the labels that say who has an object, two Syncs would write it for ever.
    pub fn request_by_rival(&self, uid: &str, now: Instant) -> bool {
        {
            let mut runs = self.0.lock();
            let window = &mut runs.entry(uid.to_owned()).or_default().by_rivals;
            if window.since.is_none_or(|since| now.duration_since(since) >= RIVAL_WINDOW) {
                *window = Window { since: Some(now), count: 0 };
            }
            window.count += 1;
            if window.count > MAX_RIVAL_REQUESTS {
                return false;
            }
        }
        self.request(uid);
        true
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

    #[test]
    fn rivals_request_a_few_runs_a_minute() {
        let (runs, now) = (Runs::default(), Instant::now());
        for (second, expected) in [(0, true), (1, true), (2, true), (3, true), (59, true), (59, false)] {
            let at = now + Duration::from_secs(second);
            assert_eq!(runs.request_by_rival("a", at), expected, "{second}");
        }
        assert!(runs.request_by_rival("b", now), "each Sync has its own limit");
        assert!(runs.request_by_rival("a", now + RIVAL_WINDOW));
    }
}
