//! Applies a revision: render, read what exists, check, record the inventory, apply, delete.
//!
//! The inventory is recorded before the first write, so a manager that is killed at any point knows afterward what it may
//! have written.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use chandler_api::extensions::{HeldObject, SYNC_LABEL, SyncObject, SyncStatus, SyncedObject};
use chandler_core::{
    conditions,
    digest::Digest,
    failure::{Category, Failure},
    sync::{
        Applied, Claim, Claims, Held, Live, MAX_OBJECTS, Manifest, Move, ObjectId, Outcome, PruneInput,
        Skipped, WriteDecision, accept_missing, add_uids, decide_write, definitions, is_established, kinds,
        merge_inventory, moving, needs_others, plan_prune, rendered_digest, resolve, steps,
    },
};
use chandler_source::SourceTree;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{
    SyncContext,
    account::{Account, ApplyOptions, RequestError},
    claim_of,
    delete::{Deletion, delete_all},
    served_kinds::{FoundKinds, ServedKind, kind_of},
    status_writer::StatusWriter,
};
use crate::ReconcileError;

/// Concurrent requests of one Sync.
pub const CONCURRENT_REQUESTS: usize = 4;
/// How long a CustomResourceDefinition may take until its kind is served.
const ESTABLISH_LIMIT: Duration = Duration::from_mins(1);
const ESTABLISH_POLL: Duration = Duration::from_millis(500);
/// How often a Cluster is read again because it has changed before it was written.
const ATTEMPTS: usize = 5;
/// The largest inventory: the objects of a folder, and as many that are held.
const MAX_RECORDED: usize = 2 * MAX_OBJECTS;
/// Number of failed objects that a message lists.
const LISTED: usize = 5;

/// One run of a Sync at one revision.
pub struct Run<'a> {
    pub context: &'a SyncContext,
    pub sync: &'a SyncObject,
    pub namespace: &'a str,
    pub account: &'a Account,
    /// A user has resumed the Sync after it had suspended itself.
    pub resumed: bool,
    /// It is due only because the Source has another revision: if the objects are the same, nothing has to be done.
    pub revision_only: bool,
}

/// The objects that exist, by id. `None` means that an object does not exist; objects that were not read are missing.
type LiveObjects = BTreeMap<ObjectId, Option<Value>>;

/// What will be written.
struct Prepared {
    kinds: FoundKinds,
    writes: Vec<Manifest>,
    skipped: Vec<(ObjectId, Skipped)>,
    /// What all Syncs own.
    claims: Claims,
    rendered: BTreeSet<ObjectId>,
    inventory: Vec<SyncedObject>,
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
        let prepared = match self.prepare(tree, status).await {
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
                }));
            }
        };
        let replaces = replaces_applied(status.current(), &prepared.digest);
        if replaces {
            self.context.run_again(self.sync);
        }
        if self.resumed || replaces || prepared.inventory != status.current().inventory {
            let recorded = Outcome::Recorded { inventory: prepared.inventory.clone() };
            status.write(Some(&tree.revision), &recorded).await?;
        }
        Ok(self.write_all(prepared, &tree.revision, status).await)
    }

    /// Reads and checks everything. Nothing is written.
    async fn prepare(&self, tree: &SourceTree, status: &StatusWriter<'_>) -> Result<Prepared, Stop> {
        let documents = self.context.render.render(tree, &self.sync.spec.source.path).await?;
        let recorded = &status.current().inventory;
        let wanted = kinds(&documents).into_iter().chain(recorded.iter().map(kind_of));
        let kinds = self.context.kinds.find(wanted.collect::<Vec<_>>()).await?;
        let manifests = resolve(documents, self.namespace, |kind| kinds.get(kind).map(|kind| kind.scope))?;
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
        let live = self.read(&inventory, &kinds).await?;
        if let Some(why) = self.moving(recorded, &rendered, &live) {
            return Err(Stop::Moving(why));
        }
        let claims = self.context.claims();
        let own = claim_of(self.sync);
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
        let prepared = Prepared { kinds, writes, skipped, claims, rendered, inventory, digest };
        if !is_applied {
            self.check(&prepared).await?;
        }
        Ok(prepared)
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
            let object = self.account.get(kind.location(&id)).await;
            let object = object.map_err(|failure| about(&id, &failure))?;
            Ok::<_, Failure>((id, object))
        });
        stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_REQUESTS).try_collect().await
    }

    /// Lets the API server validate all objects, so that a bad revision changes nothing. Objects whose namespace, kind or role is
    /// created by the same revision cannot be validated yet.
    async fn check(&self, prepared: &Prepared) -> Result<(), Failure> {
        let options = ApplyOptions { dry_run: true, force: self.sync.spec.force };
        let checks = prepared.writes.iter().filter_map(|manifest| {
            let kind = prepared.kinds.get(&manifest.kind)?;
            Some(async move {
                let checked =
                    self.account.apply(kind.location(&manifest.id), &manifest.object, options).await;
                match checked {
                    Err(error) if !(error.missing && needs_others(manifest, &prepared.rendered)) => {
                        Some(manifest.failure(error.failure.category, &error.failure.message))
                    }
                    _ => None,
                }
            })
        });
        let checks = stream::iter(checks.collect::<Vec<_>>()).buffered(CONCURRENT_REQUESTS);
        let failures: Vec<_> = checks.filter_map(std::future::ready).collect().await;
        match combined(failures) {
            Some(Failure { category, message }) => {
                Err(Failure::new(category, format!("{message}; nothing is changed")))
            }
            None => Ok(()),
        }
    }

    /// Applies and deletes.
    async fn write_all(&self, prepared: Prepared, revision: &str, status: &StatusWriter<'_>) -> Outcome {
        let Prepared { mut kinds, writes, mut skipped, claims, rendered, mut inventory, digest } = prepared;
        for step in steps(writes) {
            let wanted: Vec<_> = step.iter().map(|manifest| manifest.kind.clone()).collect();
            match self.context.kinds.find(wanted).await {
                Ok(found) => kinds.extend(found),
                Err(failure) => return Outcome::Failed { failure, inventory: Some(inventory) },
            }
            let mut failures = Vec::new();
            let (served, claims) = (&kinds, &claims);
            let writes = step
                .iter()
                .map(|manifest| async move { (manifest, self.write(manifest, served, claims).await) });
            let mut writes = stream::iter(writes.collect::<Vec<_>>()).buffered(CONCURRENT_REQUESTS);
            while let Some((manifest, written)) = writes.next().await {
                match written {
                    Ok(Written::Applied { uid }) => set_uid(&mut inventory, &manifest.id, &uid),
                    Ok(Written::Skipped(why)) => skipped.push((manifest.id.clone(), why)),
                    Err(failure) => failures.push(manifest.failure(failure.category, &failure.message)),
                }
            }
            drop(writes);
            if failures.is_empty() {
                failures.extend(self.await_definitions(&step, &kinds).await.err());
            }
            if let Some(failure) = combined(failures) {
                return Outcome::Failed { failure, inventory: Some(inventory) };
            }
        }
        let failures = skipped.iter().filter_map(|(id, why)| why.failure(id)).collect();
        if let Some(failure) = combined(failures) {
            return Outcome::Failed { failure, inventory: Some(inventory) };
        }
        let paused: Vec<_> = skipped.into_iter().map(|(id, _)| id).collect();
        if !paused.is_empty() {
            let held = still_held(&status.current().held, &rendered);
            return Outcome::Applied(Applied { digest, inventory, held, paused });
        }
        self.prune(&kinds, &rendered, inventory, revision, digest, status).await
    }

    /// Writes one object, if that is still allowed.
    async fn write(
        &self,
        manifest: &Manifest,
        kinds: &FoundKinds,
        claims: &Claims,
    ) -> Result<Written, Failure> {
        let kind = kinds.get(&manifest.kind).ok_or_else(|| {
            Failure::new(Category::NotReady, "its kind is not served by the management cluster yet")
        })?;
        let options = ApplyOptions { dry_run: false, force: self.sync.spec.force };
        if !manifest.id.is_cluster() {
            let applied = self.account.apply(kind.location(&manifest.id), &manifest.object, options).await;
            return applied.map(|object| written(&object)).map_err(|error| error.failure);
        }
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match self.write_cluster(manifest, kind, options, claims).await? {
                Ok(written) => return Ok(written),
                Err(error) if error.outdated => last = Some(error.failure),
                Err(error) => return Err(error.failure),
            }
        }
        Err(last.unwrap_or_else(|| Failure::new(Category::Conflict, "it changes all the time")))
    }

    /// Reads a Cluster and writes it only if it is not paused and does not change meanwhile.
    async fn write_cluster(
        &self,
        manifest: &Manifest,
        kind: &ServedKind,
        options: ApplyOptions,
        claims: &Claims,
    ) -> Result<Result<Written, RequestError>, Failure> {
        let at = kind.location(&manifest.id);
        let live = self.account.get(at).await?;
        if live.is_none() && !self.resumed && self.has_written(&manifest.id) {
            let message = "it was deleted meanwhile; it may be moved to another management cluster";
            return Err(Failure::new(Category::NotReady, message));
        }
        let own = claim_of(self.sync);
        match decide_write(&manifest.id, live.as_ref().map(Live), &own, claims) {
            WriteDecision::Skip(why) => Ok(Ok(Written::Skipped(why))),
            WriteDecision::Write { resource_version } => {
                let uid = live.as_ref().and_then(|live| Live(live).uid());
                let object = at_version(&manifest.object, uid, resource_version);
                let applied = self.account.apply(at, &object, options).await;
                Ok(applied.map(|object| written(&object)))
            }
        }
    }

    /// Returns whether an object was written before.
    fn has_written(&self, id: &ObjectId) -> bool {
        let mut recorded = self.sync.status.iter().flat_map(|status| &status.inventory);
        recorded.any(|object| !object.uid.is_empty() && ObjectId::from(object) == *id)
    }

    /// Waits until the kinds that a step defines are served.
    async fn await_definitions(&self, step: &[Manifest], kinds: &FoundKinds) -> Result<(), Failure> {
        let begin = Instant::now();
        for definition in definitions(step) {
            let Some(kind) = kinds.get(&definition.kind) else { continue };
            loop {
                let live = self.account.get(kind.location(&definition.id)).await?;
                if live.as_ref().is_some_and(is_established) {
                    break;
                }
                if begin.elapsed() > ESTABLISH_LIMIT {
                    let problem =
                        format!("its kind is not served after {ESTABLISH_LIMIT:?}; see its conditions");
                    return Err(definition.failure(Category::NotReady, &problem));
                }
                tokio::time::sleep(ESTABLISH_POLL).await;
            }
        }
        Ok(())
    }

    /// Deletes what is no longer in the folder and what the prune guard allows, after everything in it was applied.
    async fn prune(
        &self,
        kinds: &FoundKinds,
        rendered: &BTreeSet<ObjectId>,
        inventory: Vec<SyncedObject>,
        revision: &str,
        digest: Digest,
        status: &StatusWriter<'_>,
    ) -> Outcome {
        let current = status.current();
        let plan = plan_prune(&PruneInput {
            prune: &self.sync.spec.prune,
            revision,
            inventory: &inventory,
            rendered,
            own: &PruneInput::own_objects(self.sync, &self.context.platform),
            source_changed: PruneInput::is_source_changed(self.sync, current),
            revision_applied_before: PruneInput::was_applied_before(revision, current),
            held: &current.held,
        });
        let label = claim_of(self.sync).label();
        let deletions = delete_all(self.account, kinds, &label, plan.delete).await;
        let (mut held, mut failures, mut gone) = (plan.held, Vec::new(), BTreeSet::new());
        for (object, deletion) in deletions {
            let id = ObjectId::from(&object);
            match deletion {
                Deletion::Done | Deletion::NotOurs => {
                    gone.insert(id);
                }
                Deletion::Held(reason) => held.push(Held { object, reason }),
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
        Outcome::Applied(Applied { digest, inventory, held, paused: Vec::new() })
    }
}

/// Returns whether the status reports other objects as applied than those that are about to be written. A manager that is
/// killed while it writes must not find this afterward: if the branch has been reset meanwhile, it would change nothing.
fn replaces_applied(status: &SyncStatus, digest: &Digest) -> bool {
    let other = status.last_applied.as_ref().is_some_and(|last| last.digest != digest.as_str());
    other && conditions::is_true(&status.conditions, "Ready")
}

/// The result of a write.
enum Written {
    Applied { uid: String },
    Skipped(Skipped),
}

fn written(object: &Value) -> Written {
    Written::Applied { uid: Live(object).uid().unwrap_or_default().to_owned() }
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

/// Returns an object that is applied only if it still exists with this uid and resource version.
fn at_version(object: &Value, uid: Option<&str>, version: Option<String>) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.extend(uid.map(|uid| ("uid".to_owned(), uid.into())));
        metadata.extend(version.map(|version| ("resourceVersion".to_owned(), version.into())));
    }
    object
}

fn set_uid(inventory: &mut [SyncedObject], id: &ObjectId, uid: &str) {
    if let Some(object) = inventory.iter_mut().find(|object| ObjectId::from(&**object) == *id) {
        uid.clone_into(&mut object.uid);
    }
}

/// Returns the objects that stay held because nothing is deleted.
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
