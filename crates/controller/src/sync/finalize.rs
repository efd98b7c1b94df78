//! Deletes the objects of a Sync that is being deleted with `deletionPolicy: Prune`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chandler_api::{
    extensions::{DeletionPolicy, SYNC_FINALIZER, SyncObject, SyncedObject},
    reasons::{Reason, SyncReason},
};
use chandler_core::{
    failure::{Category, Failure},
    sync::{
        MoveSuspension, ObjectId, OtherSync, Outcome, PruneInput, PrunePlan, Want, move_suspension, own_move,
        plan_deletion, run_delay,
    },
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _, runtime::controller::Action};

use super::{
    SyncContext, claim_of,
    delete_objects::{Deletion, delete_all},
    impersonated_client::ImpersonatedClient,
    others::{Gone, Polled},
    reconciler::SHORTEST_DELAY,
    run::{about, combined},
    served_kinds::kind_of,
    status_writer::StatusWriter,
};
use crate::{ReconcileError, status};

/// The revision under which failures of the deletion are counted.
const DELETION: &str = "deletion";
/// The longest time until a failed deletion is tried again.
const MAX_RETRY: Duration = Duration::from_mins(10);

pub async fn reconcile(
    context: &SyncContext,
    sync: &SyncObject,
    impersonated: &ImpersonatedClient,
) -> Result<Action, ReconcileError> {
    if !sync.finalizers().iter().any(|finalizer| finalizer == SYNC_FINALIZER) {
        return Ok(Action::await_change());
    }
    let wait = retry_delay(context, sync);
    if !wait.is_zero() {
        return Ok(Action::requeue(wait));
    }
    let started = context.runs.start(&sync.uid().unwrap_or_default());
    let keeps = sync.spec.deletion_policy == DeletionPolicy::Orphan
        || sync.spec.suspend
        || move_suspension(sync) == MoveSuspension::Suspended
        || own_move(sync).is_some();
    if !keeps
        && let Err(failure) = prune(context, sync, impersonated).await
        && !lost_account(context, sync, &failure).await
    {
        let category = failure.category;
        let advice = "set deletionPolicy: Orphan to delete the Sync and keep the rest of its objects";
        let failure = Failure::new(category, format!("{}; {advice}", failure.message));
        let outcome = Outcome::Failed { failure, inventory: None };
        StatusWriter::new(context, sync).write(None, &outcome).await?;
        context.record_run(sync, started, DELETION, Some(category), Timestamp::now());
        return Ok(Action::requeue(retry_delay(context, sync).max(SHORTEST_DELAY)));
    }
    status::remove_finalizer(&context.client, sync, SYNC_FINALIZER).await?;
    Ok(Action::await_change())
}

/// Returns whether the permissions of the account are gone for good, because its namespace is being deleted. A Sync that waited
/// for them would keep the namespace from being deleted, and no user could grant them again. What is left is kept.
async fn lost_account(context: &SyncContext, sync: &SyncObject, failure: &Failure) -> bool {
    let is_lost = failure.category == Category::Forbidden && is_namespace_deleted(context, sync).await;
    if is_lost {
        let note = format!("the namespace is being deleted, so these objects are kept: {}", failure.message);
        context.events.warning(sync, Reason::from(SyncReason::Held).as_str(), &note);
    }
    is_lost
}

async fn is_namespace_deleted(context: &SyncContext, sync: &SyncObject) -> bool {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let found = namespaces.get_metadata_opt(&sync.namespace().unwrap_or_default()).await;
    found.ok().flatten().is_some_and(|found| found.metadata.deletion_timestamp.is_some())
}

/// Returns why it is not known whether another Sync wants objects that would be deleted otherwise.
fn unknown(plan: &PrunePlan, checked: &PrunePlan, polled: &Polled) -> Option<Failure> {
    let would_delete = |object: &SyncedObject| plan.delete.contains(object);
    let mut held = checked.held.iter().filter(|held| would_delete(&held.object));
    let (held, other) = held.find_map(|held| {
        let other = held.kept_for.as_ref().filter(|other| other.want == Want::Unknown)?;
        Some((held, other))
    })?;
    let message = format!("{} may still be wanted: {}", ObjectId::from(&held.object), other.message());
    let category = polled.failure().map_or(Category::SourceUnavailable, |failure| failure.category);
    Some(Failure::new(category, message))
}

/// Returns the time until the deletion is tried again. Zero means that it is due.
fn retry_delay(context: &SyncContext, sync: &SyncObject) -> Duration {
    let last = context.runs.last(&sync.uid().unwrap_or_default());
    run_delay(last.as_ref(), sync, DELETION, MAX_RETRY, Timestamp::now())
}

async fn prune(
    context: &SyncContext,
    sync: &SyncObject,
    impersonated: &ImpersonatedClient,
) -> Result<(), Failure> {
    let current = sync.status.clone().unwrap_or_default();
    let revision = current.last_applied.as_ref().map_or("", |last| &*last.revision);
    let kinds = context.kinds.find(current.inventory.iter().map(kind_of).collect::<Vec<_>>()).await?;
    let gone = current.inventory.iter().map(|object| Gone::new(object, &kinds)).collect::<Vec<_>>();
    let decide = |wanted: &BTreeMap<ObjectId, OtherSync>| {
        plan_deletion(&PruneInput {
            prune: &sync.spec.prune,
            revision,
            inventory: &current.inventory,
            rendered: &BTreeSet::new(),
            own: &PruneInput::own_objects(sync, &context.platform),
            source_changed: false,
            revision_applied_before: false,
            held: &current.held,
            wanted,
        })
    };
    let mut plan = decide(&BTreeMap::new());
    if !plan.delete.is_empty() {
        let polled = context.poll_others(sync, None, &gone).await?;
        let wanted = context.wanted_by_others(sync, None, &gone, Some(&polled)).await?;
        let checked = decide(&wanted.objects);
        // What is kept now stays: nothing deletes it later.
        if let Some(failure) = unknown(&plan, &checked, &polled)
            && !is_namespace_deleted(context, sync).await
        {
            return Err(failure);
        }
        plan = checked;
    }
    let mut kept: Vec<_> = plan.held.iter().map(|held| ObjectId::from(&held.object)).collect();
    let mut failures = Vec::new();
    for (object, deletion) in delete_all(impersonated, &kinds, &claim_of(sync).label(), plan.delete).await {
        let id = ObjectId::from(&object);
        match deletion {
            Deletion::Done | Deletion::NotOurs => {}
            Deletion::Held(_) | Deletion::Moving => kept.push(id),
            Deletion::Failed(failure) => failures.push(about(&id, &failure)),
        }
    }
    if let Some(failure) = combined(failures) {
        return Err(failure);
    }
    if !kept.is_empty() {
        let names: Vec<_> = kept.iter().map(ObjectId::to_string).collect();
        let note = format!("the Sync is deleted; these objects are kept: {}", names.join(", "));
        context.events.warning(sync, Reason::from(SyncReason::Held).as_str(), &note);
    }
    Ok(())
}
