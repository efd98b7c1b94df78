//! The controller of Syncs: applies folders of Sources to the management cluster, as ServiceAccounts of their namespaces.

mod delete_objects;
mod finalize;
mod impersonated_client;
mod moves;
mod others;
mod reconciler;
mod render;
mod run;
mod runs;
mod served_kinds;
mod status_writer;
#[cfg(test)]
mod tests;
mod trees;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use chandler_api::extensions::{SyncObject, SyncStatus};
use chandler_core::{
    failure::Category,
    sync::{ChangedSync, Claim, Claims, LastRun, ObjectId, Reaction, is_rival, named, reaction},
};
use chandler_source::NamespaceSemaphore;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{Store, store::Writer},
};

use self::{
    moves::ClusterMoves,
    others::Directories,
    runs::{Runs, Started},
    served_kinds::ServedKinds,
    status_writer::WrittenStatuses,
};
pub use self::{render::Render, trees::Trees};
use crate::{
    events::Events,
    metrics::Metrics,
    queue::{self, Queue, Trigger},
    routing::Router,
    run::Shared,
    tasks::Tasks,
    tenancies::Tenancies,
    watch::{Change, FirstList, Scope, watch},
};

const KIND: &str = "Sync";
/// Concurrent requests of all Syncs. It protects the API server of the management cluster.
const CONCURRENT_REQUESTS: usize = 16;

/// What the reconciles of Syncs share.
pub struct SyncContext {
    client: Client,
    events: Events,
    scope: Scope,
    store: Store<SyncObject>,
    trees: Arc<dyn Trees>,
    render: Arc<dyn Render>,
    kinds: ServedKinds,
    moves: ClusterMoves,
    written: WrittenStatuses,
    runs: Runs,
    directories: Directories,
    /// Number of Syncs that were deleted.
    deleted: AtomicU64,
    /// The uids of the Syncs that had an object together with another one when the manager started.
    contested: OnceLock<HashSet<String>>,
    limit: Arc<NamespaceSemaphore>,
    /// The namespace of Sources with `scope: Platform`.
    platform: String,
    tenancies: Tenancies,
    enqueue: Box<dyn Fn(&SyncObject) + Send + Sync>,
}

impl SyncContext {
    /// Returns what the watched Syncs own, or want to own.
    fn claims(&self) -> Claims {
        Claims {
            syncs: self.store.state().iter().map(|sync| claim_of(&self.written.newest(sync))).collect(),
            namespace: self.scope.namespace.clone(),
            filtered: self.scope.labels.is_some(),
        }
    }

    /// Returns whether a Sync shared an object with another one when the manager started. The manager before may have
    /// been killed before both were applied again, and no event follows.
    fn is_contested(&self, uid: &str) -> bool {
        let find = || {
            let mut owners: HashMap<ObjectId, Vec<String>> = HashMap::new();
            for sync in self.store.state() {
                for object in claim_of(&sync).objects {
                    owners.entry(object).or_default().extend(sync.uid());
                }
            }
            owners.into_values().filter(|syncs| syncs.len() > 1).flatten().collect()
        };
        self.contested.get_or_init(find).contains(uid)
    }

    /// Lets the next reconcile of a Sync apply it, whenever it was applied last.
    fn run_again(&self, sync: &SyncObject) {
        self.runs.request(&sync.uid().unwrap_or_default());
    }

    /// Records that a Sync was applied at a revision, or that it failed.
    fn record_run(
        &self,
        sync: &SyncObject,
        started: Started,
        revision: &str,
        failed: Option<Category>,
        now: Timestamp,
    ) {
        let next = |before: Option<&LastRun>| LastRun::after(before, sync, revision, failed, now);
        self.runs.record(&sync.uid().unwrap_or_default(), started, next);
    }

    fn on_sync(&self, change: &Change<'_, SyncObject>, router: &Router) {
        let sync = change.object();
        match change {
            Change::Applied(_) => router.enqueue_sync(sync),
            Change::Deleted(_) => {
                self.deleted.fetch_add(1, Ordering::AcqRel);
                self.runs.remove(&sync.uid().unwrap_or_default());
                self.written.forget(sync);
            }
        }
        self.enqueue_affected(sync, matches!(change, Change::Deleted(_)), router);
        let name = sync.name_any();
        let depends = |other: &SyncObject| {
            other.metadata.namespace == sync.metadata.namespace && other.spec.depends_on.contains(&name)
        };
        for dependent in self.store.state_filter(depends) {
            router.enqueue_sync(&dependent);
        }
    }

    /// Enqueues the Syncs that keep objects for this one, and those that it keeps objects for. An object
    /// that moves between two Syncs is handed over by their statuses.
    fn enqueue_affected(&self, sync: &SyncObject, is_deleted: bool, router: &Router) {
        let (name, none) = (named(sync), SyncStatus::default());
        let status = sync.status.as_ref().unwrap_or(&none);
        for other in self.store.state_filter(|other| other.metadata.uid != sync.metadata.uid) {
            let changed = ChangedSync { name: &name, status, is_deleted };
            let react = |own: &SyncStatus| reaction(&named(&other), own, changed);
            match self.written.read(&other, react) {
                Reaction::None => continue,
                Reaction::Report => {}
                Reaction::Apply => self.run_again(&other),
            }
            router.enqueue_sync(&other);
        }
    }

    /// Applies Syncs again that have objects which another one has just written. Whichever of two Syncs
    /// writes last, the older one gets the object, and the younger one reports the conflict.
    fn notify_rivals(&self, sync: &SyncObject, objects: &BTreeSet<ObjectId>) {
        if objects.is_empty() {
            return;
        }
        for other in self.store.state_filter(|other| other.metadata.uid != sync.metadata.uid) {
            let is_rival = self.written.read(&other, |status| is_rival(status, objects));
            let uid = other.uid().unwrap_or_default();
            if is_rival && self.runs.request_by_rival(&uid, Instant::now()) {
                (self.enqueue)(&other);
            }
        }
    }

    /// Handles a change of a Cluster: Syncs that have written it suspend themselves if it is moved, and continue if it is
    /// not paused any more.
    pub fn on_cluster(&self, change: &Change<'_, DynamicObject>, router: &Router) {
        let Some(cluster) = self.moves.on_cluster(change) else { return };
        for sync in self.store.state() {
            if has_recorded(&self.written.newest(&sync), &cluster) {
                self.run_again(&sync);
                router.enqueue_sync(&sync);
            }
        }
    }
}

/// Returns whether an object is in the inventory of a Sync, also if it is no longer in its folder.
fn has_recorded(sync: &SyncObject, id: &ObjectId) -> bool {
    let mut inventory = sync.status.iter().flat_map(|status| &status.inventory);
    inventory.any(|object| ObjectId::from(object) == *id)
}

/// Returns what a Sync owns, or wants to own: its inventory without what is no longer in its folder.
fn claim_of(sync: &SyncObject) -> Claim {
    let status = sync.status.as_ref();
    let held: BTreeSet<_> = status.iter().flat_map(|status| &status.held).map(ObjectId::from).collect();
    let inventory = status.iter().flat_map(|status| &status.inventory).map(ObjectId::from);
    let objects = inventory.filter(|id| !held.contains(id)).collect();
    Claim {
        created: sync.metadata.creation_timestamp.as_ref().map(|time| time.0),
        namespace: sync.namespace().unwrap_or_default(),
        name: sync.name_any(),
        objects,
    }
}

/// The controller of Syncs. It watches the namespaces of its manager only: a Sync has exactly one manager.
pub struct SyncController {
    scope: Scope,
    writer: Writer<SyncObject>,
    queue: Queue<SyncObject>,
}

/// The controller of Syncs, watched.
pub struct WatchedSyncs {
    pub context: Arc<SyncContext>,
    first_list: FirstList,
    queue: Queue<SyncObject>,
}

impl SyncController {
    pub fn new(scope: Scope, metrics: &Metrics) -> (Self, Trigger<SyncObject>) {
        let (trigger, queue) = Trigger::new(KIND, metrics);
        (Self { scope, writer: Writer::new(()), queue }, trigger)
    }

    /// Starts to watch Syncs.
    pub fn watch(
        self,
        shared: &Shared,
        trees: Arc<dyn Trees>,
        render: Arc<dyn Render>,
        platform: String,
    ) -> WatchedSyncs {
        let Self { scope, writer, queue } = self;
        let router = shared.router.clone();
        let context = Arc::new(SyncContext {
            client: shared.client.clone(),
            events: shared.events.clone(),
            scope: scope.clone(),
            store: writer.as_reader(),
            trees,
            render,
            kinds: ServedKinds::new(shared.client.clone()),
            moves: ClusterMoves::default(),
            written: WrittenStatuses::default(),
            runs: Runs::default(),
            directories: Directories::default(),
            deleted: AtomicU64::default(),
            contested: OnceLock::new(),
            limit: Arc::new(NamespaceSemaphore::new(CONCURRENT_REQUESTS)),
            platform,
            tenancies: shared.tenancies.clone(),
            enqueue: Box::new(move |sync| router.enqueue_sync(sync)),
        });
        let (watching, router) = (context.clone(), shared.router.clone());
        let resource = ApiResource::erase::<SyncObject>(&());
        let first_list = watch(shared.client.clone(), &scope, &resource, writer, move |change| {
            watching.on_sync(change, &router);
        });
        WatchedSyncs { context, first_list, queue }
    }
}

impl WatchedSyncs {
    /// Returns when everything has been listed; `false` if the watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        self.first_list.is_complete().await
    }

    /// Reconciles Syncs.
    pub fn run(self, tasks: &mut Tasks, shared: &Shared) {
        let Self { context, first_list: _, queue } = self;
        let (store, metrics) = (context.store.clone(), shared.metrics.clone());
        tasks.spawn(follow_sources(context.clone(), shared.router.clone()));
        let (retried, router) = (context.clone(), shared.router.clone());
        let retry = move |sync: &SyncObject| {
            retried.run_again(sync);
            router.enqueue_sync(sync);
        };
        let tenancies = context.tenancies.clone();
        tasks.spawn(tenancies.retry_refused(vec![store.clone()], conditions_of, retry));
        tasks.spawn(queue::run(KIND, (), store, queue, metrics, context, reconciler::reconcile));
    }
}

fn conditions_of(sync: &SyncObject) -> &[Condition] {
    sync.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// Enqueues all Syncs whenever a Source has another revision. A Sync whose Source has not changed costs nothing.
async fn follow_sources(context: Arc<SyncContext>, router: Router) {
    let mut changes = context.trees.changes();
    while changes.changed().await.is_ok() {
        for sync in context.store.state() {
            router.enqueue_sync(&sync);
        }
    }
}
