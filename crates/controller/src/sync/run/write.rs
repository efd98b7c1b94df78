//! Applies the objects of a revision, step by step.

use std::time::{Duration, Instant};

use chandler_api::extensions::SyncedObject;
use chandler_core::{
    failure::{Category, Failure},
    sync::{
        Applied, Claims, Live, Manifest, ObjectId, Outcome, Skipped, WriteDecision, decide_write,
        definitions, is_established, is_first_stage, steps,
    },
};
use chandler_source::SourceTree;
use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::{CONCURRENT_REQUESTS, Prepared, Run, check::NOT_SERVED, combined, still_held};
use crate::sync::{
    claim_of,
    impersonated_client::{ApplyOptions, RequestError},
    served_kinds::{FoundKinds, ServedKind},
    status_writer::StatusWriter,
};

/// How long a CustomResourceDefinition may take until its kind is served.
const ESTABLISH_LIMIT: Duration = Duration::from_mins(1);
const ESTABLISH_POLL: Duration = Duration::from_millis(500);
/// How often a Cluster is read again because it has changed before it was written.
const ATTEMPTS: usize = 5;

/// The result of a write.
enum Written {
    Applied { uid: String },
    Skipped(Skipped),
}

impl Run<'_> {
    /// Applies and deletes.
    pub(super) async fn write_all(
        &self,
        prepared: Prepared,
        tree: &SourceTree,
        status: &StatusWriter<'_>,
    ) -> Outcome {
        let Prepared { mut kinds, writes, mut deferred, mut skipped, claims, rendered, .. } = prepared;
        let Prepared { mut inventory, taken_over, digest, .. } = prepared;
        for step in steps(writes) {
            if !is_first_stage(&step) {
                let checked =
                    self.check_deferred(&std::mem::take(&mut deferred), &mut kinds, &rendered).await;
                if let Err(failure) = checked {
                    return Outcome::Failed { failure, inventory: Some(inventory) };
                }
            }
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
                    Ok(Written::Applied { uid }) => {
                        set_uid(&mut inventory, &manifest.id, &uid);
                        self.written.lock().insert(manifest.id.clone());
                    }
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
            return Outcome::Applied(Applied { digest, inventory, held, paused, is_incomplete: false });
        }
        inventory.retain(|object| !taken_over.contains(&ObjectId::from(object)));
        self.prune(&kinds, &rendered, inventory, tree, digest, status).await
    }

    /// Writes one object, if that is still allowed.
    async fn write(
        &self,
        manifest: &Manifest,
        kinds: &FoundKinds,
        claims: &Claims,
    ) -> Result<Written, Failure> {
        let kind = kinds.get(&manifest.kind).ok_or_else(|| Failure::new(Category::NotReady, NOT_SERVED))?;
        let options = ApplyOptions { dry_run: false, force: self.sync.spec.force };
        if !manifest.id.is_cluster() {
            let applied =
                self.impersonated.apply(kind.location(&manifest.id), &manifest.object, options).await;
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
        let live = self.impersonated.get(at).await?;
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
                let applied = self.impersonated.apply(at, &object, options).await;
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
                let live = self.impersonated.get(kind.location(&definition.id)).await?;
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
}

fn written(object: &Value) -> Written {
    Written::Applied { uid: Live(object).uid().unwrap_or_default().to_owned() }
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
