//! Models of what the CLI shows of a management cluster: reads objects and shapes them. Printing is left to the caller.

pub mod catalog;
pub mod commits;
pub mod description;
#[cfg(any(test, feature = "fixtures"))]
#[allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "only tests use it")]
pub mod fixtures;
pub mod fleet;
pub mod history;
pub mod listing;
pub mod paging;
pub mod plan;
pub mod rollback;
pub mod rollouts;
pub mod sources;
pub mod suspend_and_retry;
pub mod tunnels;
pub mod upgrade_check;

/// Displays which objects are being read while a command takes long.
pub trait Progress: Sync {
    fn report(&self, message: String);
}
