//! Reconciles a Sync: decides whether it is suspended, moved, waiting or due, and applies it.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use chandler_api::extensions::{DeletionPolicy, SYNC_FINALIZER, SyncObject};
use chandler_core::{
    failure::{Category, Failure},
    poll::interval,
    sync::{
        Dependency, Directory, LastRun, Move, MoveSuspension, ObjectId, Outcome, check_dependencies,
        is_due_by_revision_only, move_suspension, own_move, run_delay,
    },
};
use chandler_source::SourceTree;
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::controller::Action};

use super::{
    KIND, SyncContext, finalize, impersonated_client::ImpersonatedClient, run::Run, runs::Started,
    status_writer::StatusWriter,
};
use crate::{ReconcileError, locks::Mutex, status};

/// Deadline of one run. What it may have written is in the inventory.
const RUN_LIMIT: Duration = Duration::from_mins(10);
/// How often a Sync checks its dependencies without an event.
const DEPENDENCY_POLL: Duration = Duration::from_secs(30);
pub const SHORTEST_DELAY: Duration = Duration::from_secs(1);

pub async fn reconcile(sync: Arc<SyncObject>, context: Arc<SyncContext>) -> Result<Action, ReconcileError> {
    let sync = context.written.newest(&sync);
    let incomplete = |field| ReconcileError::Incomplete { kind: KIND, name: sync.name_any(), field };
    let namespace = sync.namespace().ok_or_else(|| incomplete("namespace"))?;
    let uid = sync.uid().ok_or_else(|| incomplete("uid"))?;
    let impersonated = ImpersonatedClient {
        client: context.client.clone(),
        namespace: namespace.clone(),
        name: sync.spec.service_account_name.clone(),
        limit: context.limit.clone(),
    };
    if sync.metadata.deletion_timestamp.is_some() {
        return finalize::reconcile(&context, &sync, &impersonated).await;
    }
    let started = context.runs.start(&uid);
    let reconciler = Reconciler { context: &context, sync: &sync, namespace: &namespace, uid: &uid, started };
    reconciler.reconcile(&impersonated).await
}

struct Reconciler<'a> {
    context: &'a SyncContext,
    sync: &'a SyncObject,
    namespace: &'a str,
    uid: &'a str,
    started: Started,
}

impl Reconciler<'_> {
    async fn reconcile(&self, impersonated: &ImpersonatedClient) -> Result<Action, ReconcileError> {
        let mut status = StatusWriter::new(self.context, self.sync);
        if let Some(outcome) = self.suspended() {
            self.context.runs.forget(self.uid);
            status.write(None, &outcome).await?;
            return Ok(Action::await_change());
        }
        let every = match interval(&self.sync.spec.interval) {
            Ok(every) => every,
            Err(failure) => return self.fail(&mut status, failure).await,
        };
        let tree = match self.context.tree(&Directory::of(self.sync)).await {
            Ok(tree) => tree,
            Err(failure) => return self.fail(&mut status, failure).await,
        };
        match check_dependencies(self.sync, &tree.revision, &self.neighbors()) {
            Ok(()) => {}
            Err(Dependency::Cycle(failure)) => return self.fail(&mut status, failure).await,
            Err(Dependency::NotReady(why)) => {
                self.context.runs.forget(self.uid);
                status.write(Some(&tree.revision), &Outcome::Waiting(why)).await?;
                return Ok(Action::requeue(DEPENDENCY_POLL));
            }
        }
        let delay = self.delay(&tree.revision, every);
        if !delay.is_zero() {
            return Ok(Action::requeue(delay));
        }
        let revision_only = self.is_due_by_revision_only(every);
        self.set_finalizer().await?;
        let run = Run {
            context: self.context,
            sync: self.sync,
            namespace: self.namespace,
            impersonated,
            resumed: move_suspension(self.sync) == MoveSuspension::Resumed,
            revision_only,
            written: Mutex::default(),
        };
        self.apply(&run, &tree, &mut status).await?;
        Ok(Action::requeue(self.delay(&tree.revision, every).max(SHORTEST_DELAY)))
    }

    /// Returns why nothing is applied, or `None` if the Sync is not suspended.
    fn suspended(&self) -> Option<Outcome> {
        if self.sync.spec.suspend {
            return Some(Outcome::Suspended);
        }
        if let Some(why) = own_move(self.sync) {
            return Some(Outcome::Moving(why));
        }
        match move_suspension(self.sync) {
            MoveSuspension::Suspended => Some(Outcome::StillMoving),
            MoveSuspension::Resumed => {
                self.context.moves.forget(self.inventory());
                None
            }
            MoveSuspension::NotSuspended => {
                let seen = self.context.moves.seen(self.inventory());
                seen.into_iter().next().map(|id| Outcome::Moving(Move::Deleting(id)))
            }
        }
    }

    fn inventory(&self) -> impl Iterator<Item = ObjectId> {
        self.sync.status.iter().flat_map(|status| &status.inventory).map(ObjectId::from)
    }

    /// Returns the Syncs of the namespace, by name.
    fn neighbors(&self) -> BTreeMap<String, Arc<SyncObject>> {
        let own = |other: &SyncObject| other.metadata.namespace.as_deref() == Some(self.namespace);
        let all = self.context.store.state_filter(own).into_iter();
        all.map(|sync| (sync.name_any(), Arc::new(self.context.written.newest(&sync)))).collect()
    }

    /// Returns the time until the Sync is applied. Zero means that it is due.
    fn delay(&self, revision: &str, every: Duration) -> Duration {
        let now = Timestamp::now();
        let recorded = || {
            let recorded = LastRun::from_status(self.sync, revision, now)?;
            (!self.context.is_contested(self.uid)).then_some(recorded)
        };
        let last = self.context.runs.last_or(self.uid, recorded);
        run_delay(last.as_ref(), self.sync, revision, every, now)
    }

    /// Only a Sync that deletes its objects needs a finalizer.
    async fn set_finalizer(&self) -> Result<(), ReconcileError> {
        match self.sync.spec.deletion_policy {
            DeletionPolicy::Prune => {
                status::add_finalizer(&self.context.client, self.sync, SYNC_FINALIZER).await?;
            }
            DeletionPolicy::Orphan => {
                status::remove_finalizer(&self.context.client, self.sync, SYNC_FINALIZER).await?;
            }
        }
        Ok(())
    }

    fn is_due_by_revision_only(&self, every: Duration) -> bool {
        is_due_by_revision_only(self.context.runs.last(self.uid).as_ref(), self.sync, every, Timestamp::now())
    }

    async fn apply(
        &self,
        run: &Run<'_>,
        tree: &SourceTree,
        status: &mut StatusWriter<'_>,
    ) -> Result<(), ReconcileError> {
        let deleted = self.context.deleted.load(Ordering::Acquire);
        let outcome = if let Ok(outcome) = tokio::time::timeout(RUN_LIMIT, run.run(tree, status)).await {
            outcome?
        } else {
            let message = format!("the objects were not applied within {RUN_LIMIT:?}; this is retried");
            Outcome::Failed { failure: Failure::new(Category::Timeout, message), inventory: None }
        };
        let held = status.current().held.clone();
        status.write(Some(&tree.revision), &outcome).await?;
        self.context.notify_rivals(self.sync, &run.written.lock());
        let failed = match &outcome {
            Outcome::Failed { failure, .. } => Some(failure.category),
            Outcome::Applied(applied) if applied.is_incomplete => Some(Category::SourceUnavailable),
            // It is reconciled again in case a user resumes it.
            Outcome::Moving(_) => Some(Category::NotReady),
            _ => None,
        };
        self.context.record_run(self.sync, self.started, &tree.revision, failed, Timestamp::now());
        // The Sync with the object may have been deleted before the conflict was reported, so that no event follows.
        let is_outdated =
            failed == Some(Category::Conflict) && self.context.deleted.load(Ordering::Acquire) != deleted;
        let is_handed_over =
            status.current().held != held && self.context.has_handed_over(&status.current().held);
        if is_outdated || is_handed_over {
            self.context.run_again(self.sync);
        }
        Ok(())
    }

    /// Reports a failure before anything was read from the cluster, and retries with backoff.
    async fn fail(&self, status: &mut StatusWriter<'_>, failure: Failure) -> Result<Action, ReconcileError> {
        let category = failure.category;
        status.write(None, &Outcome::Failed { failure, inventory: None }).await?;
        self.context.record_run(self.sync, self.started, "", Some(category), Timestamp::now());
        Ok(Action::requeue(self.delay("", RUN_LIMIT).max(SHORTEST_DELAY)))
    }
}
