//! Counts the requests and connections of all replayed clusters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{Method, Uri};
use jiff::Timestamp;

/// What a request to a replayed cluster is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The list of the release records of all namespaces.
    List,
    Watch,
    /// The request that asks whether the cluster still answers.
    Probe,
    /// Another read, for example of one release.
    OtherRead,
    /// A write that changes nothing.
    DryRun,
    Write,
}

impl RequestKind {
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let has = |expected: &[&str]| {
            let mut parameters = uri.query().unwrap_or_default().split('&');
            parameters.any(|parameter| expected.contains(&parameter))
        };
        let is_watch = has(&["watch=true", "watch=1"]);
        match uri.path() {
            _ if *method == Method::PATCH && has(&["dryRun=All"]) => Self::DryRun,
            _ if *method != Method::GET => Self::Write,
            _ if is_watch => Self::Watch,
            "/version" => Self::Probe,
            "/api/v1/secrets" => Self::List,
            _ => Self::OtherRead,
        }
    }
}

/// The counts since the last reset.
#[derive(Clone, Debug, Default)]
pub struct ReplayCounts {
    pub lists: u64,
    pub watches: u64,
    pub probes: u64,
    pub other_reads: u64,
    pub dry_runs: u64,
    /// Method and path of the first write, which the replay refuses.
    pub first_write: Option<String>,
    /// When the last request arrived that was no probe.
    pub last: Option<Timestamp>,
    /// The highest number of connections that were being opened at the same time.
    pub most_connecting: u32,
    connecting: u32,
}

impl ReplayCounts {
    /// Returns the number of reads without probes, and of dry runs.
    pub fn reads(&self) -> u64 {
        self.lists + self.watches + self.other_reads + self.dry_runs
    }

    fn count(&mut self, method: &Method, uri: &Uri, now: Timestamp) -> RequestKind {
        let kind = RequestKind::of(method, uri);
        match kind {
            RequestKind::List => self.lists += 1,
            RequestKind::Watch => self.watches += 1,
            RequestKind::Probe => self.probes += 1,
            RequestKind::OtherRead => self.other_reads += 1,
            RequestKind::DryRun => self.dry_runs += 1,
            RequestKind::Write => {
                self.first_write.get_or_insert_with(|| format!("{method} {}", uri.path()));
            }
        }
        if kind != RequestKind::Probe {
            self.last = Some(now);
        }
        kind
    }

    fn begin_connecting(&mut self) {
        self.connecting += 1;
        self.most_connecting = self.most_connecting.max(self.connecting);
    }

    /// Sets the counts to zero. A write is never forgotten.
    fn reset(&mut self) {
        *self = Self {
            first_write: self.first_write.take(),
            connecting: self.connecting,
            most_connecting: self.connecting,
            ..Self::default()
        };
    }
}

/// The counts of all replayed clusters. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ReplayTraffic(Arc<Mutex<ReplayCounts>>);

impl ReplayTraffic {
    pub fn counts(&self) -> ReplayCounts {
        self.lock().clone()
    }

    pub fn reset(&self) {
        self.lock().reset();
    }

    pub fn count(&self, method: &Method, uri: &Uri) -> RequestKind {
        self.lock().count(method, uri, Timestamp::now())
    }

    /// Counts a connection as being opened until the returned value is dropped.
    pub fn connecting(&self) -> Connecting {
        self.lock().begin_connecting();
        Connecting(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, ReplayCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is being opened.
#[derive(Debug)]
pub struct Connecting(ReplayTraffic);

impl Drop for Connecting {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        counts.connecting = counts.connecting.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified_by_method_path_and_query() {
        let rows = [
            (Method::GET, "/version", RequestKind::Probe),
            (Method::GET, "/api/v1/secrets?&labelSelector=owner%3Dhelm&limit=500", RequestKind::List),
            (Method::GET, "/api/v1/secrets?&watch=true&timeoutSeconds=290", RequestKind::Watch),
            (Method::GET, "/api/v1/namespaces/fleet/secrets", RequestKind::OtherRead),
            (Method::PATCH, "/api/v1/namespaces/fleet/secrets/a", RequestKind::Write),
            (Method::PATCH, "/api/v1/namespaces/fleet/secrets/a?dryRun=All&force=true", RequestKind::DryRun),
            (Method::DELETE, "/api/v1/namespaces/fleet/secrets/a?dryRun=All", RequestKind::Write),
        ];
        for (method, uri, expected) in rows {
            assert_eq!(RequestKind::of(&method, &uri.parse().unwrap()), expected, "{method} {uri}");
        }
    }

    #[test]
    fn a_reset_keeps_writes_and_open_attempts() {
        let traffic = ReplayTraffic::default();
        let first = traffic.connecting();
        let second = traffic.connecting();
        traffic.count(&Method::POST, &"/api/v1/namespaces".parse().unwrap());
        traffic.count(&Method::GET, &"/api/v1/secrets".parse().unwrap());
        assert_eq!((traffic.counts().most_connecting, traffic.counts().reads()), (2, 1));
        drop(first);
        traffic.reset();
        let counts = traffic.counts();
        assert_eq!((counts.most_connecting, counts.reads(), counts.last), (1, 0, None));
        assert_eq!(counts.first_write.as_deref(), Some("POST /api/v1/namespaces"));
        drop(second);
        traffic.reset();
        assert_eq!(traffic.counts().most_connecting, 0);
    }
}
