//! Rollouts: in which order, and how many at the same time, the release objects of a placement get a change that its clusters
//! share.
//!
//! A placement composes the release object of each cluster as always. If its policy has a rollout, [`change_kind`] says which of
//! the changed objects are written at once, and [`plan`] which of the others may be written now. Everything is derived from the
//! release objects: their spec, their status, and the [`RolloutRecord`] that the placement leaves on them.

mod change;
mod late;
mod member;
mod plan;
mod record;
mod replaced;
mod report;
mod requests;
mod running;
mod settings;

pub use self::{
    change::{ChangeKind, change_kind, next_record},
    late::settle,
    member::{
        Checked, Interruption, Member, MemberRules, MemberState, TargetState, active_at, member_state,
        observed_record,
    },
    plan::{RolloutPlan, plan},
    record::{RolloutRecord, RolloutTarget, shared_digest, target_of},
    replaced::Replaced,
    report::condition,
    requests::{RolloutRequests, aborted_revision},
    running::running_targets,
    settings::{RolloutSettings, RolloutSettingsError},
};
