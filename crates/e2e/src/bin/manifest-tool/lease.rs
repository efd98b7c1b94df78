//! The limit of the manager's Lease, after which the process sends nothing to a cluster.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

/// The timers of tokio do not count while the machine is suspended, so the clock is read at least this often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The Lease. Clones share its limit, a time since boot. `None` means no limit.
#[derive(Clone, Debug)]
pub struct Lease(watch::Sender<Option<Duration>>);

impl Default for Lease {
    fn default() -> Self {
        Self(watch::channel(None).0)
    }
}

impl Lease {
    /// Executes a line of standard input. Other commands than `lease-until` are ignored.
    pub fn execute(&self, command: &str) {
        let nanoseconds = command.strip_prefix("lease-until ").and_then(|until| until.parse().ok());
        if let Some(nanoseconds) = nanoseconds {
            self.0.send_replace(Some(Duration::from_nanos(nanoseconds)));
        }
    }

    pub fn has_expired(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Completes when the Lease has expired.
    pub async fn expired(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let left = self.left().unwrap_or(CHECK_INTERVAL);
            if left.is_zero() {
                return;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(left.min(CHECK_INTERVAL)) => {}
            }
        }
    }

    fn left(&self) -> Option<Duration> {
        let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        self.0.borrow().map(|until| until.saturating_sub(now))
    }
}
