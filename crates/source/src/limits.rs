//! Limits on the size and duration of responses from sources.

use std::time::Duration;

/// Limits on the size and duration of responses from sources.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub index_bytes: u64,
    /// Limit of manifests, tag lists and tokens.
    pub document_bytes: u64,
    pub package_bytes: u64,
    /// Limit of establishing a connection.
    pub connect_timeout: Duration,
    /// Limit of the time between two chunks of a response.
    pub read_timeout: Duration,
    /// Limit of a whole request, including redirects.
    pub total_timeout: Duration,
    /// How long responses are cached, shared by all callers.
    pub cache_ttl: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            index_bytes: 256 << 20,
            document_bytes: 4 << 20,
            package_bytes: 64 << 20,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_mins(2),
            cache_ttl: Duration::from_mins(1),
        }
    }
}
