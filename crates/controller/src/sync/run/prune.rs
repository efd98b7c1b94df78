//! Deletes the objects that are no longer in the folder.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::{HeldObject, SyncedObject};
use chandler_core::{
    digest::Digest,
    failure::Failure,
    sync::{
        Applied, Directory, Held, Move, ObjectId, OtherSync, Outcome, PruneInput, PrunePlan, Want, named,
        plan_prune,
    },
};

use chandler_source::SourceTree;

use super::{Run, about, combined};
use crate::sync::{
    claim_of,
    delete_objects::{Deletion, delete_all},
    others::Gone,
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
        let decide = |wanted: &BTreeMap<ObjectId, OtherSync>| {
            plan_prune(&PruneInput {
                prune: &self.sync.spec.prune,
                revision: &tree.revision,
                inventory: &inventory,
                rendered,
                own: &PruneInput::own_objects(self.sync, &self.context.platform),
                source_changed: PruneInput::is_source_changed(self.sync, current),
                revision_applied_before: PruneInput::was_applied_before(&tree.revision, current),
                held: &current.held,
                wanted,
            })
        };
        let (plan, is_incomplete) = match self.plan(&gone, tree, decide).await {
            Ok(planned) => planned,
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

    /// Plans with what other Syncs want. If something would be deleted, that is found out at the newest
    /// revisions. Also returns whether some of them are not known.
    async fn plan(
        &self,
        gone: &[Gone<'_>],
        tree: &SourceTree,
        decide: impl Fn(&BTreeMap<ObjectId, OtherSync>) -> PrunePlan,
    ) -> Result<(PrunePlan, bool), Failure> {
        let wanted =
            async |tree, polled| self.context.wanted_by_others(self.sync, Some(tree), gone, polled).await;
        let plan = decide(&wanted(tree, None).await?.objects);
        if plan.delete.is_empty() {
            return Ok((plan, false));
        }
        let polled = self.context.poll_others(self.sync, Some(tree), gone).await?;
        let own = Directory::of(self.sync);
        let newest = self.context.tree(&own).await?;
        let mut objects = wanted(&newest, Some(&polled)).await?.objects;
        if let Some(failure) = polled.failure_of(&own.source_key(&self.context.platform)) {
            let (sync, state) = (named(self.sync), Some(failure.message.clone()));
            let unknown = OtherSync { sync, want: Want::Unknown, state };
            for gone in gone {
                objects.entry(gone.id.clone()).or_insert_with(|| unknown.clone());
            }
        }
        let mut plan = decide(&objects);
        if newest.revision != tree.revision {
            // What is gone may be back in the newer revision, which is applied next.
            let back = self.context.objects_in(&own, &newest).await;
            plan.delete
                .retain(|object| back.as_ref().is_ok_and(|back| !back.contains(&ObjectId::from(object))));
            self.context.run_again(self.sync);
        }
        Ok((plan, polled.failure().is_some()))
    }
}
