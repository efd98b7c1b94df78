//! Sources: which commit of a repository or which artifact is fetched, which of its files count, what they are, which
//! namespaces may use them, polling, the history and the status.

mod content;
mod folder;
mod git_ref;
mod history;
mod ignore;
mod namespace_access;
mod oci_ref;
mod origin;
mod poll_request;
mod polling;
mod report;
mod revision_record;
mod short_revision;
mod stored;

pub use chandler_api::extensions::{Bucket, BucketProvider, SourceRevisionRecord, VerificationMode};
pub use content::{Content, content_of, has_content, is_manifest};
pub use folder::evaluated_path;
pub use git_ref::{
    RemoteRef, RemoteRefs, SelectedRevision, SelectedTag, pinned_commit, select_commit, tag_names,
    tags_digest,
};
pub use history::history;
pub use ignore::Ignore;
pub use namespace_access::may_use_source;
pub use oci_ref::{ArtifactSelector, select_tag};
pub use origin::Origin;
pub use poll_request::PollRequest;
pub use polling::{PollCause, content_key, interval_remark, max_refs_age, poll_interval, poll_seed};
pub use report::{FetchedRevision, PollResult, report};
pub use revision_record::{artifact_record, revision_record, summary};
pub use short_revision::{revision_digits, short_revision};
pub use stored::StoredFor;
