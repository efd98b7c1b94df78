//! Applies a revision: render, read what exists, check, record the inventory, apply, delete.
//!
//! The inventory is recorded before the first write, so a manager that is killed at any point knows afterward what it may
//! have written.

mod check;
mod prepare;
mod prune;
mod write;

use std::collections::BTreeSet;

use chandler_api::extensions::{HeldObject, SyncObject, SyncStatus, SyncedObject};
use chandler_core::{
    conditions,
    digest::Digest,
    failure::Failure,
    sync::{Applied, Claims, Manifest, Move, ObjectId, Outcome, Skipped},
};
use chandler_source::SourceTree;
use kube::ResourceExt as _;

use super::{
    SyncContext, claim_of, impersonated_client::ImpersonatedClient, served_kinds::FoundKinds,
    status_writer::StatusWriter,
};
use crate::{ReconcileError, locks::Mutex};

/// Concurrent requests of one Sync.
pub const CONCURRENT_REQUESTS: usize = 4;
/// Number of failed objects that a message lists.
const LISTED: usize = 5;

/// One run of a Sync at one revision.
pub struct Run<'a> {
    pub context: &'a SyncContext,
    pub sync: &'a SyncObject,
    pub namespace: &'a str,
    pub impersonated: &'a ImpersonatedClient,
    /// A user has resumed the Sync after it had suspended itself.
    pub resumed: bool,
    /// It is due only because the Source has another revision: if the objects are the same, nothing has to be done.
    pub revision_only: bool,
    /// The objects that it has written.
    pub written: Mutex<BTreeSet<ObjectId>>,
}

/// What will be written.
struct Prepared {
    kinds: FoundKinds,
    writes: Vec<Manifest>,
    /// Those of `writes` that are valid only once CustomResourceDefinitions of the same revision are
    /// written.
    deferred: Vec<Manifest>,
    skipped: Vec<(ObjectId, Skipped)>,
    /// What all Syncs own.
    claims: Claims,
    /// What they owned before anything was read.
    claims_before: Claims,
    rendered: BTreeSet<ObjectId>,
    inventory: Vec<SyncedObject>,
    /// The objects that other Syncs have taken over.
    taken_over: BTreeSet<ObjectId>,
    digest: Digest,
}

/// Why a run has ended early.
enum Stop {
    Failed(Failure),
    Moving(Move),
    /// The objects are the same as at the last revision.
    Unchanged(Digest),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Run<'_> {
    /// Applies a tree. Writes the status itself before the first write only.
    pub async fn run(
        &self,
        tree: &SourceTree,
        status: &mut StatusWriter<'_>,
    ) -> Result<Outcome, ReconcileError> {
        let mut prepared = match self.prepare(tree, status).await {
            Ok(prepared) => prepared,
            Err(Stop::Failed(failure)) => return Ok(Outcome::Failed { failure, inventory: None }),
            Err(Stop::Moving(why)) => return Ok(Outcome::Moving(why)),
            Err(Stop::Unchanged(digest)) => {
                let inventory = status.current().inventory.clone();
                return Ok(Outcome::Applied(Applied {
                    digest,
                    inventory,
                    held: Vec::new(),
                    paused: Vec::new(),
                    is_incomplete: false,
                }));
            }
        };
        let replaces = replaces_applied(status.current(), &prepared.digest);
        if replaces {
            self.context.runs.forget(&self.sync.uid().unwrap_or_default());
        }
        let current = status.current();
        let held = still_held(&current.held, &prepared.rendered);
        if self.resumed || replaces || (&prepared.inventory, &held) != (&current.inventory, &current.held) {
            let recorded = Outcome::Recorded { inventory: prepared.inventory.clone(), held };
            status.write(Some(&tree.revision), &recorded).await?;
        }
        self.yield_to_older(&mut prepared);
        Ok(self.write_all(prepared, tree, status).await)
    }

    /// Leaves objects to older Syncs that have recorded them since they were read: two Syncs that begin
    /// at the same time would both write them.
    fn yield_to_older(&self, prepared: &mut Prepared) {
        let (own, now) = (claim_of(self.sync), self.context.claims());
        let Prepared { writes, deferred, skipped, claims_before, .. } = prepared;
        let taken = writes.iter().filter_map(|manifest| {
            let by = now.newly_taken(&manifest.id, &own, claims_before)?;
            Some((manifest.id.clone(), Skipped::Taken { by }))
        });
        let taken: Vec<_> = taken.collect();
        let is_own = |manifest: &Manifest| taken.iter().all(|(id, _)| *id != manifest.id);
        writes.retain(is_own);
        deferred.retain(is_own);
        skipped.extend(taken);
    }
}

/// Returns whether the status reports other objects as applied than those that are about to be written. A manager that is
/// killed while it writes must not find this afterward: if the branch has been reset meanwhile, it would change nothing.
fn replaces_applied(status: &SyncStatus, digest: &Digest) -> bool {
    let other = status.last_applied.as_ref().is_some_and(|last| last.digest != digest.as_str());
    other && conditions::is_true(&status.conditions, "Ready")
}

/// Returns the objects that stay held while nothing is deleted.
fn still_held(held: &[HeldObject], rendered: &BTreeSet<ObjectId>) -> Vec<HeldObject> {
    let is_gone = |held: &&HeldObject| !rendered.contains(&ObjectId::from(*held));
    held.iter().filter(is_gone).cloned().collect()
}

/// Returns a failure that names an object.
pub fn about(id: &ObjectId, failure: &Failure) -> Failure {
    Failure::new(failure.category, format!("{id}: {}", failure.message))
}

/// Returns one failure for all: the category of the first one, and their messages.
pub fn combined(failures: Vec<Failure>) -> Option<Failure> {
    let category = failures.first()?.category;
    let more = failures.len().saturating_sub(LISTED);
    let mut messages: Vec<_> = failures.into_iter().take(LISTED).map(|failure| failure.message).collect();
    if more > 0 {
        messages.push(format!("and {more} more"));
    }
    Some(Failure::new(category, messages.join("; ")))
}
