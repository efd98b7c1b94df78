//! How much of a source is taken, and for how long.

use std::time::Duration;

/// Bounds on everything that comes from a source.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub index_bytes: u64,
    /// Manifests, lists of tags, tokens.
    pub document_bytes: u64,
    pub package_bytes: u64,
    /// Until a connection stands.
    pub connect: Duration,
    /// Between two pieces of an answer.
    pub pause: Duration,
    /// For all of it, redirects included.
    pub overall: Duration,
    /// How long an answer is taken for still true, whoever asks.
    pub fresh: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            index_bytes: 256 << 20,
            document_bytes: 4 << 20,
            package_bytes: 64 << 20,
            connect: Duration::from_secs(10),
            pause: Duration::from_secs(30),
            overall: Duration::from_mins(2),
            fresh: Duration::from_mins(1),
        }
    }
}
