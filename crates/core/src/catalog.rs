//! Catalogs: where their charts are, which charts of a repository or folder belong to a catalog, which namespaces may use it, which extension versions
//! its charts publish, search, and the status.

mod entries;
mod folder_charts;
mod location;
mod namespace_access;
mod report;
mod search;
mod selection;
mod usage;

pub use entries::{ANNOTATIONS, CHANNEL, DEPENDENCIES, Entry, EntryFolder, published_entries};
pub use folder_charts::{FolderChart, folder_charts};
pub use location::{OfferedFolder, join, location, offered_folder};
pub use namespace_access::{Namespace, SharedObject, may_use};
pub use report::{PollResult, report, unverifiable};
pub use search::{Rank, SearchQuery};
pub use selection::Selection;
pub use usage::{Usage, excluded_versions};
