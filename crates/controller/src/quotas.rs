//! Quotas of namespaces, besides the slots for operations.

use std::time::Duration;

/// What the objects of a namespace may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Time per minute in which the value templates of a namespace are evaluated. `None` means that it is not limited.
    pub template_time: Option<Duration>,
    /// The longest timeout of an operation. A longer one is reduced to it.
    pub max_timeout: Duration,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { template_time: None, max_timeout: Duration::from_hours(1) }
    }
}
