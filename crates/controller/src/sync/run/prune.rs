//! Deletes the objects that are no longer in the folder.

use std::collections::BTreeSet;

use chandler_api::extensions::{HeldObject, SyncedObject};
use chandler_core::{
    digest::Digest,
    sync::{Applied, Held, Move, ObjectId, Outcome, PruneInput, plan_prune},
};

use chandler_source::SourceTree;

use super::{Run, about, combined};
use crate::sync::{
    claim_of,
    delete_objects::{Deletion, delete_all},
    others::{Gone, Polled},
    served_kinds::FoundKinds,
    status_writer::StatusWriter,
};

impl Run<'_> {
    /// Deletes what is no longer in the folder and what the prune guard allows, after everything in it was applied.
    pub(super) async fn prune(
        &self,
        kinds: &FoundKinds,
        rendered: &BTreeSet<ObjectId>,
        inventory: Vec<SyncedObject>,
        tree: &SourceTree,
        digest: Digest,
        status: &StatusWriter<'_>,
    ) -> Outcome {
        let current = status.current();
        let gone = inventory.iter().filter(|object| !rendered.contains(&ObjectId::from(*object)));
        let gone: Vec<_> = gone.map(|object| Gone::new(object, kinds)).collect();
        let revision = &*tree.revision;
        let plan = async |polled: Option<&Polled>| {
            let wanted = self.context.wanted_by_others(self.sync, Some(tree), &gone, polled).await?;
            Ok(plan_prune(&PruneInput {
                prune: &self.sync.spec.prune,
                revision,
                inventory: &inventory,
                rendered,
                own: &PruneInput::own_objects(self.sync, &self.context.platform),
                source_changed: PruneInput::is_source_changed(self.sync, current),
                revision_applied_before: PruneInput::was_applied_before(revision, current),
                held: &current.held,
                wanted: &wanted.objects,
            }))
        };
        let (mut planned, mut is_incomplete) = (plan(None).await, false);
        if planned.as_ref().is_ok_and(|plan| !plan.delete.is_empty()) {
            planned = match self.context.poll_others(self.sync, Some(tree), &gone).await {
                Ok(polled) => {
                    is_incomplete = polled.failure().is_some();
                    plan(Some(&polled)).await
                }
                Err(failure) => Err(failure),
            };
        }
        let plan = match planned {
            Ok(plan) => plan,
            Err(failure) => return Outcome::Failed { failure, inventory: Some(inventory) },
        };
        let label = claim_of(self.sync).label();
        let deletions = delete_all(self.impersonated, kinds, &label, plan.delete).await;
        let (mut held, mut failures, mut gone) = (plan.held, Vec::new(), BTreeSet::new());
        for (object, deletion) in deletions {
            let id = ObjectId::from(&object);
            match deletion {
                Deletion::Done | Deletion::NotOurs => {
                    gone.insert(id);
                }
                Deletion::Held(reason) => held.push(Held::new(object, reason)),
                Deletion::Moving => return Outcome::Moving(Move::Deleting(id)),
                Deletion::Failed(failure) => failures.push(about(&id, &failure)),
            }
        }
        let inventory: Vec<_> =
            inventory.into_iter().filter(|object| !gone.contains(&ObjectId::from(object))).collect();
        if let Some(failure) = combined(failures) {
            return Outcome::Failed { failure, inventory: Some(inventory) };
        }
        let held = held.iter().map(HeldObject::from).collect();
        Outcome::Applied(Applied { digest, inventory, held, paused: Vec::new(), is_incomplete })
    }
}
