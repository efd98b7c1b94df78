//! What an API server was asked, as it tells itself: by count from its metrics, one by one from its audit log.

mod audit;
mod counts;

pub use self::audit::{AuditEntry, AuditLog, ReadAuditLog};
pub use self::counts::{RequestCounts, RequestKey};
