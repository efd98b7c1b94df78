//! Counts the requests of the measured controller in the API servers' audit logs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use chandler_sandbox::{
    plane::Plane,
    requests::{AuditEntry, AuditLog},
};

/// The user agent of the benchmark's own requests, which are not counted.
pub const USER_AGENT: &str = "chandler-bench";

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Whether an API server is that of the management cluster or of a workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Management,
    Workload,
}

/// Readers of the audit logs of all clusters, and the counts of requests.
#[derive(Debug)]
pub struct Traffic {
    logs: Vec<(Side, AuditLog)>,
    counts: BTreeMap<(Side, String), u64>,
    last: Option<SystemTime>,
}

impl Traffic {
    pub fn of(management: &Plane, workloads: &[Plane]) -> Self {
        let workloads = workloads.iter().map(|plane| (Side::Workload, plane.audit_log()));
        let logs = std::iter::once((Side::Management, management.audit_log())).chain(workloads).collect();
        Self { logs, counts: BTreeMap::new(), last: None }
    }

    /// Sets all counts to zero.
    pub fn reset(&mut self) -> Result<()> {
        self.read()?;
        self.counts.clear();
        self.last = None;
        Ok(())
    }

    /// Waits until there was at least one request and then none for the duration `quiet`. Ignores periodic requests.
    pub async fn wait_quiet(&mut self, quiet: Duration, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut quiet_since = Instant::now();
        loop {
            if self.read()? > 0 {
                quiet_since = Instant::now();
            }
            let is_quiet = self.last.is_some() && quiet_since.elapsed() >= quiet;
            if is_quiet || Instant::now() > deadline {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub fn count(&self, side: Side) -> u64 {
        self.counts.iter().filter(|((counted, _), _)| *counted == side).map(|(_, count)| count).sum()
    }

    /// Returns the counts by request, such as `management patch helmreleaseproxies/status`.
    pub fn by_request(&self) -> BTreeMap<String, u64> {
        let label = |side: Side| match side {
            Side::Management => "management",
            Side::Workload => "workload",
        };
        let counts = self.counts.iter();
        counts.map(|((side, request), count)| (format!("{} {request}", label(*side)), *count)).collect()
    }

    /// Returns when the last request was received, ignoring periodic requests.
    pub fn last(&self) -> Option<SystemTime> {
        self.last
    }

    /// Reads new entries of the audit logs. Returns the number of new requests, ignoring periodic requests.
    pub fn read(&mut self) -> Result<usize> {
        let mut requests = 0;
        for (side, log) in &mut self.logs {
            for entry in log.read()?.into_iter().filter(|entry| entry.user_agent != USER_AGENT) {
                if !is_periodic(&entry) {
                    requests += 1;
                    self.last = self.last.max(Some(entry.received.into()));
                }
                *self.counts.entry((*side, request_name(&entry))).or_default() += 1;
            }
        }
        Ok(requests)
    }
}

/// Returns whether a controller sends the request again and again without work: it renews a Lease, or asks whether a quiet
/// cluster still answers.
fn is_periodic(entry: &AuditEntry) -> bool {
    entry.resource == "leases" || path(entry) == "/version"
}

fn path(entry: &AuditEntry) -> &str {
    entry.uri.split('?').next().unwrap_or_default()
}

fn request_name(entry: &AuditEntry) -> String {
    let resource = if entry.resource.is_empty() { path(entry) } else { entry.resource.as_str() };
    let slash = if entry.subresource.is_empty() { "" } else { "/" };
    let error = if entry.code >= 400 { format!(" → {}", entry.code) } else { String::new() };
    format!("{} {resource}{slash}{}{error}", entry.verb, entry.subresource)
}
