//! The requests of the manager to the management cluster, from the audit log.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, bail};
use chandler_sandbox::{
    plane::Plane,
    requests::{AuditEntry, AuditLog},
};
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::requests::LoggedRequest;
use crate::traffic::USER_AGENT;

/// Short, because the API server rotates a large log, and what was not read before is lost.
const READ_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Log {
    requests: Vec<LoggedRequest>,
    /// Why reading has ended.
    error: Option<String>,
}

/// Follows the audit log until it is dropped.
pub struct ManagementLog {
    log: Arc<Mutex<Log>>,
    _task: AbortOnDropHandle<()>,
}

impl ManagementLog {
    pub fn follow(management: &Plane) -> Self {
        let log = Arc::new(Mutex::new(Log::default()));
        let task = tokio::spawn(follow(management.audit_log(), log.clone()));
        Self { log, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns the requests that were received since a point in time. Waits until the log is read up to now.
    pub async fn since(&self, from: Timestamp) -> Result<Vec<LoggedRequest>> {
        tokio::time::sleep(READ_INTERVAL * 3).await;
        let log = self.lock();
        if let Some(error) = &log.error {
            bail!("{error}");
        }
        let mut requests: Vec<_> =
            log.requests.iter().filter(|request| request.at >= from).cloned().collect();
        // The log is ordered by the end of the requests.
        requests.sort_by_key(|request| request.at);
        Ok(requests)
    }

    /// Waits until there was no request for the duration `quiet`, apart from those of an idle manager.
    pub async fn wait_quiet(&self, quiet: Duration, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            let from = Timestamp::now().checked_sub(quiet)?;
            if self.since(from).await?.iter().all(LoggedRequest::is_idle) {
                return Ok(());
            }
        }
        bail!("the manager was not idle within {} s", timeout.as_secs())
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow(mut audit: AuditLog, log: Arc<Mutex<Log>>) {
    loop {
        let read = audit.read();
        {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            match read {
                Ok(entries) => log.requests.extend(entries.into_iter().filter(is_of_manager).map(logged)),
                Err(error) => {
                    log.error = Some(error.to_string());
                    return;
                }
            }
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

fn is_of_manager(entry: &AuditEntry) -> bool {
    entry.is_from_chandler() && entry.user_agent != USER_AGENT
}

fn logged(entry: AuditEntry) -> LoggedRequest {
    LoggedRequest {
        at: entry.received,
        is_write: entry.is_write(),
        is_watch: entry.verb == "watch",
        resource: entry.resource,
        subresource: entry.subresource,
        name: entry.name,
    }
}
