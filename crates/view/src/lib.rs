//! What commands and pages show of a management cluster: objects are read and shaped here, and printed elsewhere.

pub mod catalog;
pub mod description;
#[cfg(any(test, feature = "fixtures"))]
#[allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "only tests use it")]
pub mod fixtures;
pub mod fleet;
pub mod listing;
pub mod upgrade_check;

/// Receives what is being read, for display while it takes long.
pub trait Progress: Sync {
    fn report(&self, what: String);
}
