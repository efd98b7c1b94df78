//! Requests of the measured controller, as the API servers' audit logs tell them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use chandler_sandbox::{
    plane::Plane,
    requests::{AuditEntry, AuditLog},
};

/// The bench's own requests carry it, and are left out.
pub const USER_AGENT: &str = "chandler-bench";

const LOOK: Duration = Duration::from_millis(100);

/// On which side of the fleet an API server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Management,
    Workload,
}

/// Reading positions in the audit logs of all planes.
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

    /// Forgets what came until now.
    pub fn begin(&mut self) -> Result<()> {
        self.read()?;
        self.counts.clear();
        self.last = None;
        Ok(())
    }

    /// Waits until something was asked, and then nothing more for a while; renewing a lease is no work.
    pub async fn settle(&mut self, quiet: Duration, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut silent_since = Instant::now();
        loop {
            if self.read()? > 0 {
                silent_since = Instant::now();
            }
            let silent = self.last.is_some() && silent_since.elapsed() >= quiet;
            if silent || Instant::now() > deadline {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub fn on(&self, side: Side) -> u64 {
        self.counts.iter().filter(|((of, _), _)| *of == side).map(|(_, count)| count).sum()
    }

    /// How often each request was made: `management patch helmreleaseproxies/status` → 80.
    pub fn by_request(&self) -> BTreeMap<String, u64> {
        let label = |side: Side| match side {
            Side::Management => "management",
            Side::Workload => "workload",
        };
        self.counts.iter().map(|((side, what), count)| (format!("{} {what}", label(*side)), *count)).collect()
    }

    /// When the last request that is work was received.
    pub fn last(&self) -> Option<SystemTime> {
        self.last
    }

    /// Takes in what is new; says how many of it are work.
    pub fn read(&mut self) -> Result<usize> {
        let mut work = 0;
        for (side, log) in &mut self.logs {
            for entry in log.read()?.into_iter().filter(|entry| entry.user_agent != USER_AGENT) {
                if entry.resource != "leases" {
                    work += 1;
                    self.last = self.last.max(Some(entry.received.into()));
                }
                *self.counts.entry((*side, what(&entry))).or_default() += 1;
            }
        }
        Ok(work)
    }
}

fn what(entry: &AuditEntry) -> String {
    let path = || entry.uri.split('?').next().unwrap_or_default().to_owned();
    let resource = if entry.resource.is_empty() { path() } else { entry.resource.clone() };
    let slash = if entry.subresource.is_empty() { "" } else { "/" };
    let refused = if entry.code >= 400 { format!(" → {}", entry.code) } else { String::new() };
    format!("{} {resource}{slash}{}{refused}", entry.verb, entry.subresource)
}
