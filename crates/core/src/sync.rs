//! Syncs: which objects a folder contains, in which order they are applied, to which Sync an object belongs, what may be
//! deleted, when a Sync waits or suspends itself, and its status.

mod dependencies;
mod held;
mod live;
mod manifests;
mod moving;
mod object;
mod order;
mod others;
mod ownership;
mod prune;
mod report;
mod resolve;
mod schedule;
mod write;

pub use dependencies::{Dependency, check_dependencies};
pub use held::{Held, HeldReason};
pub use live::Live;
pub use manifests::{BuiltDocument, Document, MAX_OBJECTS, check_files, read_objects};
pub use moving::{Move, MoveSuspension, accept_missing, move_suspension, moving, own_move};
pub use object::{ObjectId, add_uids, merge_inventory};
pub use order::{
    defined_kind, definitions, is_definition, is_definition_changed, is_established, is_first_stage, steps,
};
use others::kept_message;
pub use others::{
    ChangedSync, Contents, Directory, OtherSync, Reaction, SourceKey, SyncDirectory, Want, contents,
    is_emptied, is_handed_over, is_rival, is_stopped, kept_for, may_contain, named, reaction, state_of,
};
pub use ownership::{Claim, Claims, Ownership, owner_label, ownership};
pub use prune::{DeleteDecision, PruneInput, PrunePlan, decide_delete, plan_deletion, plan_prune};
pub use report::{Applied, Outcome, report, report_kept};
pub use resolve::{Manifest, Scope, kinds, needs_others, rendered_digest, resolve};
pub use schedule::{LastRun, is_due_by_revision_only, run_delay};
pub use write::{Skipped, WriteDecision, decide_write};
