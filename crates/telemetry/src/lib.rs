//! Counters and traces of other crates, which the manager exports.

mod cache_hits;
mod request_counter;
pub mod trace;

pub use cache_hits::CacheHits;
pub use request_counter::{RequestCount, RequestCounter, is_watch};
