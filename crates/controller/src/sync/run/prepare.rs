//! Reads and checks everything before the first write.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::{SYNC_LABEL, SyncedObject};
use chandler_core::{
    conditions,
    digest::Digest,
    failure::{Category, Failure},
    sync::{
        Claim, Claims, Directory, Live, MAX_OBJECTS, Manifest, Move, ObjectId, WriteDecision, accept_missing,
        add_uids, decide_write, kinds, merge_inventory, moving, rendered_digest, resolve,
    },
    tenancy::ObjectOfSync,
};
use chandler_source::SourceTree;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{CONCURRENT_REQUESTS, Prepared, Run, Stop, about};
use crate::sync::{
    claim_of,
    served_kinds::{FoundKinds, kind_of},
    status_writer::StatusWriter,
};

/// The largest inventory: the objects of a folder, and as many that are held.
const MAX_RECORDED: usize = 2 * MAX_OBJECTS;

/// The objects that exist, by id. `None` means that an object does not exist; objects that were not read are missing.
pub(super) type LiveObjects = BTreeMap<ObjectId, Option<Value>>;

impl Run<'_> {
    /// Reads and checks everything. Nothing is written.
    pub(super) async fn prepare(
        &self,
        tree: &SourceTree,
        status: &StatusWriter<'_>,
    ) -> Result<Prepared, Stop> {
        let documents = self.context.render.render(tree, &self.sync.spec.source.path).await?;
        let recorded = &status.current().inventory;
        let directory = Directory::of(self.sync);
        self.context.record_contents(directory, &tree.revision, &documents).await?;
        let wanted = kinds(&documents).into_iter().chain(recorded.iter().map(kind_of));
        let kinds = self.context.kinds.find(wanted.collect::<Vec<_>>()).await?;
        let manifests = resolve(documents, self.namespace, |kind| kinds.get(kind).map(|kind| kind.scope))?;
        self.check_tenancies(&manifests).await?;
        let digest = rendered_digest(&manifests);
        let is_applied = self.is_applied(status, &digest);
        if self.revision_only && is_applied && status.current().held.is_empty() {
            return Err(Stop::Unchanged(digest));
        }
        let rendered: BTreeSet<_> = manifests.iter().map(|manifest| manifest.id.clone()).collect();
        let records: Vec<_> = manifests.iter().map(Manifest::record).collect();
        let mut inventory = merge_inventory(recorded, &records);
        if inventory.len() > MAX_RECORDED {
            let message = format!(
                "the inventory would have {} objects, but at most {MAX_RECORDED} fit into the status; confirm the \
                 deletion of held objects; nothing is changed",
                inventory.len()
            );
            return Err(Failure::new(Category::InvalidPackage, message).into());
        }
        let claims_before = self.context.claims();
        let live = self.read(&inventory, &kinds).await?;
        if let Some(why) = self.moving(recorded, &rendered, &live) {
            return Err(Stop::Moving(why));
        }
        let existing = manifests
            .iter()
            .filter_map(|manifest| Some((&manifest.id, Live(live.get(&manifest.id)?.as_ref()?))));
        let existing: Vec<_> = existing.collect();
        let claims = self.context.claims_at(self.sync, tree, &existing).await?;
        let own = claim_of(self.sync);
        let taken_over = taken_over(&inventory, &rendered, &live, &own, &claims);
        if self.resumed {
            accept_missing(&mut inventory, &live);
        }
        add_uids(&mut inventory, &live, &own.label());
        let (mut writes, mut skipped) = (Vec::new(), Vec::new());
        for manifest in manifests {
            let existing = live.get(&manifest.id).and_then(Option::as_ref).map(Live);
            match decide_write(&manifest.id, existing, &own, &claims) {
                WriteDecision::Write { .. } => writes.push(labeled(manifest, &own)),
                WriteDecision::Skip(why) => skipped.push((manifest.id, why)),
            }
        }
        let deferred =
            if is_applied { Vec::new() } else { self.check(&writes, &kinds, &rendered, &live).await? };
        Ok(Prepared {
            kinds,
            writes,
            deferred,
            skipped,
            claims,
            claims_before,
            rendered,
            inventory,
            taken_over,
            digest,
        })
    }

    /// Checks that AddonTenancies allow all objects.
    async fn check_tenancies(&self, manifests: &[Manifest]) -> Result<(), Failure> {
        let rules = self.context.tenancies.of(self.namespace).await?;
        if rules.allow_everything() {
            return Ok(());
        }
        for manifest in manifests {
            let ObjectId { group, kind, namespace, name } = &manifest.id;
            let object = ObjectOfSync { group, kind, namespace, name };
            rules
                .check_synced(self.namespace, object)
                .map_err(|refused| manifest.failure(refused.category, &refused.message))?;
        }
        Ok(())
    }

    fn moving(
        &self,
        recorded: &[SyncedObject],
        rendered: &BTreeSet<ObjectId>,
        live: &LiveObjects,
    ) -> Option<Move> {
        let seen = self.context.moves.seen(recorded.iter().map(ObjectId::from));
        if !self.resumed {
            return moving(recorded, rendered, live, &seen);
        }
        // A user wants missing Clusters to be created again. What still carries the annotation is not touched.
        let found = moving(recorded, rendered, live, &BTreeSet::new());
        found.filter(|why| matches!(why, Move::Deleting(_)))
    }

    /// Returns whether the same objects were applied before, so that they need no check.
    fn is_applied(&self, status: &StatusWriter<'_>, digest: &Digest) -> bool {
        let status = status.current();
        status.observed_generation == self.sync.metadata.generation
            && conditions::is_true(&status.conditions, "Ready")
            && status.last_applied.as_ref().is_some_and(|last| last.digest == digest.as_str())
    }

    /// Reads objects with the permissions of the account. Objects of kinds that are not served are left out.
    async fn read(&self, objects: &[SyncedObject], kinds: &FoundKinds) -> Result<LiveObjects, Failure> {
        let found = objects.iter().filter_map(|object| {
            let kind = kinds.get(&kind_of(object))?;
            Some((ObjectId::from(object), kind))
        });
        let reads = found.map(|(id, kind)| async move {
            let object = self.impersonated.get(kind.location(&id)).await;
            let object = object.map_err(|failure| about(&id, &failure))?;
            Ok::<_, Failure>((id, object))
        });
        stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_REQUESTS).try_collect().await
    }
}

/// Returns the objects that are no longer in the directory and that other Syncs have taken over: they
/// want them, and have recorded and written them.
fn taken_over(
    inventory: &[SyncedObject],
    rendered: &BTreeSet<ObjectId>,
    live: &LiveObjects,
    own: &Claim,
    claims: &Claims,
) -> BTreeSet<ObjectId> {
    let gone = inventory.iter().map(ObjectId::from).filter(|id| !rendered.contains(id));
    let is_taken = |id: &ObjectId| {
        let label = live.get(id).and_then(Option::as_ref).and_then(|live| Live(live).owner());
        label.is_some_and(|label| label != own.label() && claims.wants(label, id))
    };
    gone.filter(is_taken).collect()
}

/// Adds the label of the Sync.
fn labeled(mut manifest: Manifest, own: &Claim) -> Manifest {
    if let Some(Value::Object(metadata)) = manifest.object.get_mut("metadata") {
        let labels = metadata.entry("labels").or_insert(Value::Null);
        if labels.is_null() {
            *labels = json!({});
        }
        // The API server refuses labels that are no map.
        if let Value::Object(labels) = labels {
            labels.insert(SYNC_LABEL.to_owned(), own.label().into());
        }
    }
    manifest
}
