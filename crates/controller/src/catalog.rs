//! The controllers of ExtensionCatalogs. They poll the repositories of catalogs, or read their folders in Sources, store the
//! result, and report it in the status.

mod access;
mod changes;
mod folder;
mod handle;
mod reconciler;
mod signers;

use std::{collections::HashMap, sync::Arc};

use chandler_api::extensions::{CatalogStatus, ExtensionCatalog};
use chandler_core::{conditions, poll::LastPoll};
use chandler_source::{NamespaceSemaphore, Packages};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Client, ResourceExt as _, api::ApiResource, runtime::reflector::Store};
use tokio::sync::watch as channel;

use self::changes::CatalogChanges;
pub use self::{
    access::{catalog_access, login_hosts, repository_access},
    folder::read_folder,
    handle::Catalogs,
    signers::{catalog_signers, public_keys, required_signers},
};
use crate::{
    events::Events,
    locks::{Mutex, MutexGuard},
    metrics::Metrics,
    queue,
    routing::{Router, ScopedQueue},
    run::Shared,
    scoped::Scoped,
    sources::Sources,
    tasks::Tasks,
    tenancies::Tenancies,
    watch::{Change, Scope, watch},
};

const KIND: &str = "ExtensionCatalog";
/// Number of catalogs that read the files of their Sources at the same time. A Source may have 64 MiB. Namespaces share it fairly.
const CONCURRENT_READERS: usize = 2;

struct CatalogContext {
    client: Client,
    packages: Arc<Packages>,
    events: Events,
    changes: Arc<CatalogChanges>,
    catalogs: Catalogs,
    sources: Sources,
    /// By uid.
    polls: Mutex<HashMap<String, LastPoll>>,
    /// The revisions of the Sources of catalogs at their last polls, by uid. `None` means that the Source was unavailable.
    observed: Mutex<HashMap<String, Option<String>>>,
    /// The revisions of Sources at which the stored catalogs were read, by uid.
    read: Mutex<HashMap<String, String>>,
    tenancies: Tenancies,
    /// Limits how many catalogs have the files of their Sources in memory.
    readers: Arc<NamespaceSemaphore>,
}

impl CatalogContext {
    fn polls(&self) -> MutexGuard<'_, HashMap<String, LastPoll>> {
        self.polls.lock()
    }

    fn on_change(&self, change: &Change<'_, ExtensionCatalog>) {
        let (catalog, exists) = (change.object(), matches!(change, Change::Applied(_)));
        if self.changes.on_object(catalog, exists) {
            self.catalogs.record_change(catalog);
        }
        if !exists {
            self.forget(&catalog.uid().unwrap_or_default());
        }
    }

    /// Removes what is known of a catalog that does not exist any more.
    fn forget(&self, uid: &str) {
        self.polls().remove(uid);
        self.observed.lock().remove(uid);
        self.read.lock().remove(uid);
        self.catalogs.forget(uid);
        self.packages.remove_catalog(uid);
    }
}

/// The controllers of catalogs, one per scope.
pub struct CatalogControllers {
    scopes: Vec<Scoped<ExtensionCatalog>>,
    catalogs: Catalogs,
    changes: Arc<CatalogChanges>,
}

impl CatalogControllers {
    pub fn new(
        scopes: Vec<Scope>,
        packages: Arc<Packages>,
        metrics: &Metrics,
    ) -> (Self, Vec<ScopedQueue<ExtensionCatalog>>) {
        let (scopes, queues) = Scoped::all(scopes, metrics);
        let changes = Arc::new(CatalogChanges::default());
        let stores = scopes.iter().map(|scoped| scoped.store.clone()).collect();
        let catalogs = Catalogs::new(stores, packages, changes.sender());
        (Self { scopes, catalogs, changes }, queues)
    }

    pub fn catalogs(&self) -> Catalogs {
        self.catalogs.clone()
    }

    /// Watches catalogs and reconciles them, also when `sources` have other revisions.
    pub fn start(self, tasks: &mut Tasks, shared: &Shared, sources: &Sources) {
        let stores = self.scopes.iter().map(|scoped| scoped.store.clone()).collect();
        tasks.spawn(follow_sources(sources.changes(), stores, shared.router.clone()));
        let readers = Arc::new(NamespaceSemaphore::new(CONCURRENT_READERS));
        for Scoped { scope, store, writer, queue } in self.scopes {
            let context = Arc::new(CatalogContext {
                client: shared.client.clone(),
                packages: shared.packages.clone(),
                events: shared.events.clone(),
                changes: self.changes.clone(),
                catalogs: self.catalogs.clone(),
                sources: sources.clone(),
                polls: Mutex::default(),
                observed: Mutex::default(),
                read: Mutex::default(),
                tenancies: shared.tenancies.clone(),
                readers: readers.clone(),
            });
            let (router, watching) = (shared.router.clone(), context.clone());
            let resource = ApiResource::erase::<ExtensionCatalog>(&());
            watch(shared.client.clone(), &scope, &resource, writer, move |change| {
                watching.on_change(change);
                router.on_catalog(change);
            });
            let (retried, router) = (context.clone(), shared.router.clone());
            let stores = vec![store.clone()];
            let retry = move |catalog: &ExtensionCatalog| {
                retried.polls().remove(&catalog.uid().unwrap_or_default());
                router.enqueue_catalog(catalog);
            };
            tasks.spawn(shared.tenancies.clone().retry_refused(stores, conditions_of, retry));
            let metrics = shared.metrics.clone();
            tasks.spawn(queue::run(KIND, (), store, queue, metrics, context, reconciler::reconcile));
        }
    }
}

/// Enqueues the catalogs that are folders of Sources whenever a Source has another revision or was deleted.
async fn follow_sources(
    mut changes: channel::Receiver<u64>,
    catalogs: Vec<Store<ExtensionCatalog>>,
    router: Router,
) {
    while changes.changed().await.is_ok() {
        for catalog in catalogs.iter().flat_map(|store| store.state_filter(is_folder)) {
            router.enqueue_catalog(&catalog);
        }
    }
}

fn is_folder(catalog: &ExtensionCatalog) -> bool {
    catalog.spec.source.is_some()
}

fn conditions_of(catalog: &ExtensionCatalog) -> &[Condition] {
    catalog.status.as_ref().map_or(&[], |status| &status.conditions)
}

fn ready(status: &CatalogStatus) -> Option<&Condition> {
    conditions::find(&status.conditions, "Ready")
}
