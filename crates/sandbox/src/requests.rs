//! The requests that an API server has received: counts from its metrics and single requests from its audit log.

mod audit;
mod counts;

pub use self::audit::{AuditEntry, AuditLog, ReadAuditLog};
pub use self::counts::{RequestCounts, RequestKey};
