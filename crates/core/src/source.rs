//! Sources: which commit of a repository is fetched, which of its files count, what they are, which namespaces may use
//! them, polling, the history and the status.

mod commit_record;
mod content;
mod git_ref;
mod history;
mod ignore;
mod namespace_access;
mod polling;
mod report;
mod short_revision;
mod stored;

pub use chandler_api::extensions::{CommitRecord, VerificationMode};
pub use commit_record::commit_record;
pub use content::{Content, content_of, is_manifest};
pub use git_ref::{
    RemoteRef, RemoteRefs, SelectedCommit, SelectedTag, pinned_commit, select_commit, tag_names,
};
pub use history::history;
pub use ignore::Ignore;
pub use namespace_access::may_use_source;
pub use polling::{PollCause, content_key, max_refs_age, poll_request, poll_seed};
pub use report::{FetchedRevision, PollResult, report};
pub use short_revision::short_revision;
pub use stored::StoredFor;
