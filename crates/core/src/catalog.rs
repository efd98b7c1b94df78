//! Catalogs: which charts of a repository belong to a catalog, which namespaces may use it, which extension versions
//! its charts publish, search, polling, and the status.

mod entries;
mod namespace_access;
mod polling;
mod report;
mod search;
mod selection;

pub use entries::{ANNOTATIONS, CHANNEL, DEPENDENCIES, Entry, published_entries};
pub use namespace_access::{Namespace, SharedObject, may_use};
pub use polling::{LastPoll, interval, poll_delay};
pub use report::{PollResult, report, unverifiable};
pub use search::{Rank, SearchQuery};
pub use selection::Selection;
