//! Wires the controllers of Extensions and of Clusters.

use std::{collections::BTreeSet, sync::Arc};

use chandler_api::extensions::{Extension, ExtensionCatalog, ExtensionInstance};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{Store, store::Writer},
};
use tokio::sync::watch as channel;

use super::{
    ClusterContext, ConfigMapKey, ExtensionContext, ExtensionRegistry, Offers, Platform, Resolver, cluster,
    hooks::ExtensionHooks,
    registry::{catalog_offers::CatalogOffers, publish},
    resolver::{LastResolutions, solver::Solver},
};
use crate::{
    StartupError, clusters,
    hooks::{self, BusyAddons, HookHandler, HookServer, PendingOperations},
    metrics::Metrics,
    pair::Pair,
    queue::{self, Queue},
    release::NamedCatalogs,
    routing::{ObjectKey, Router, ScopedQueue},
    run::{ManagementCaches, Shared},
    scoped::Scoped,
    status,
    tasks::Tasks,
    watch::{Change, FirstList, Scope, are_complete, watch},
};

/// The kind of Clusters, for metrics.
pub const CLUSTER: &str = "Cluster";

fn conditions_of(extension: &Extension) -> &[Condition] {
    extension.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// The controllers of Extensions and of Clusters.
pub struct ExtensionControllers {
    platform: Platform,
    registry: ExtensionRegistry,
    extensions: Vec<Scoped<Extension>>,
    cluster_queue: Queue<DynamicObject>,
}

/// The controllers of Extensions and of Clusters, watched.
pub struct WatchedExtensions {
    platform: Platform,
    registry: ExtensionRegistry,
    extensions: Vec<(Store<Extension>, Queue<Extension>)>,
    first_lists: Vec<FirstList>,
    cluster_queue: Queue<DynamicObject>,
}

impl ExtensionControllers {
    pub fn new(
        scopes: Vec<Scope>,
        platform: Platform,
        cluster_queue: Queue<DynamicObject>,
        metrics: &Metrics,
    ) -> (Self, Vec<ScopedQueue<Extension>>) {
        let (extensions, queues) = Scoped::all(scopes, metrics);
        (Self { platform, registry: ExtensionRegistry::default(), extensions, cluster_queue }, queues)
    }

    /// Starts to watch Extensions.
    pub fn watch(self, shared: &Shared) -> WatchedExtensions {
        let Self { platform, registry, extensions, cluster_queue } = self;
        let start = |Scoped { scope, store, writer, queue }| {
            ((store, queue), watch_extensions(shared, &scope, writer, &registry))
        };
        let (extensions, first_lists) = extensions.into_iter().map(start).unzip();
        WatchedExtensions { platform, registry, extensions, first_lists, cluster_queue }
    }
}

impl WatchedExtensions {
    /// Returns when everything has been listed; `false` if a watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        are_complete(&mut self.first_lists).await
    }

    /// Runs the controllers. Returns the resolver, and the server of hooks, which ends when it is dropped.
    pub async fn run(
        self,
        tasks: &mut Tasks,
        shared: &Shared,
        instances: &Pair<ExtensionInstance>,
        caches: &ManagementCaches,
    ) -> Result<(Arc<Resolver>, Option<HookServer>), StartupError> {
        let Self { platform, registry, extensions, first_lists: _, cluster_queue } = self;
        if let Some(from) = &shared.platform_version_from {
            // Before an extension is refused because the version is unknown.
            platform.read(&shared.client, from).await;
        }
        let resolver = Arc::new(resolver(shared, instances, caches, &platform, &registry));
        let serving = serve_hooks(tasks, shared, &resolver, caches).await?;
        let cluster_context = Arc::new(ClusterContext {
            client: shared.client.clone(),
            resolver: resolver.clone(),
            all_kinds: shared.all_kinds.clone(),
            events: shared.events.clone(),
            tunnels: caches.tunnels.clone(),
        });
        let (store, metrics) = (caches.clusters.store(), shared.metrics.clone());
        tasks.spawn(queue::run(
            CLUSTER,
            clusters::resource(),
            store,
            cluster_queue,
            metrics,
            cluster_context,
            cluster::reconcile,
        ));
        let publishing = Arc::new(ExtensionContext {
            client: shared.client.clone(),
            registry,
            offers: Offers {
                packages: shared.packages.clone(),
                catalogs: caches.catalogs.clone(),
                source_packages: Some(caches.source_packages.clone()),
            },
            poll_interval: shared.poll_interval,
            router: shared.router.clone(),
        });
        let stores: Vec<_> = extensions.iter().map(|(store, _)| store.clone()).collect();
        tasks.spawn(follow_catalogs(caches.catalogs.clone(), stores.clone(), shared.router.clone()));
        let router = shared.router.clone();
        let retry = move |extension: &Extension| router.enqueue_extension(extension);
        tasks.spawn(shared.tenancies.clone().retry_refused(stores.clone(), conditions_of, retry));
        tasks.spawn(follow_sources(
            caches.source_packages.sources().changes(),
            stores,
            shared.router.clone(),
        ));
        for (store, queue) in extensions {
            let (kind, metrics) = (status::kind::<Extension>(), shared.metrics.clone());
            tasks.spawn(queue::run(kind, (), store, queue, metrics, publishing.clone(), publish::reconcile));
        }
        if let Some(from) = shared.platform_version_from.clone() {
            tasks.spawn(follow_platform(shared, platform, from));
        }
        Ok((resolver, serving))
    }
}

/// Returns the resolver of all clusters.
pub fn resolver(
    shared: &Shared,
    instances: &Pair<ExtensionInstance>,
    caches: &ManagementCaches,
    platform: &Platform,
    registry: &ExtensionRegistry,
) -> Resolver {
    Resolver {
        references: caches.references.clone(),
        instances: instances.placements(),
        releases: instances.releases(),
        registry: registry.clone(),
        offers: CatalogOffers::new(caches.catalogs.clone()),
        platform: platform.clone(),
        router: shared.router.clone(),
        last: LastResolutions::default(),
        solver: Solver::default(),
        metrics: shared.metrics.clone(),
    }
}

/// Reconciles everything whenever the platform has another version.
fn follow_platform(
    shared: &Shared,
    platform: Platform,
    from: ConfigMapKey,
) -> impl Future<Output = ()> + Send + use<> {
    let (client, router, every) = (shared.client.clone(), shared.router.clone(), shared.parameters_interval);
    async move {
        platform.follow(&client, &from, every, || router.on_published(&platform.namespace)).await;
    }
}

/// Enqueues everything whose packages are made of files of Sources, whenever a Source has another revision.
async fn follow_sources(
    mut changes: channel::Receiver<u64>,
    extensions: Vec<Store<Extension>>,
    router: Router,
) {
    while changes.changed().await.is_ok() {
        let enqueued = enqueue_extensions(&extensions, &router, uses_sources);
        router.on_revisions(&enqueued.into_iter().map(|extension| extension.namespace).collect());
    }
}

/// Enqueues everything whose packages come from a catalog that has changed or was read at another revision.
async fn follow_catalogs(named: NamedCatalogs, extensions: Vec<Store<Extension>>, router: Router) {
    loop {
        let changed = named.catalogs.next_changed().await;
        let is_affected = |extension: &Extension| uses_catalogs(extension, &changed, &named.platform);
        let enqueued = enqueue_extensions(&extensions, &router, is_affected);
        router.on_catalog_revisions(&changed, &enqueued);
    }
}

/// Enqueues the Extensions that `filter` accepts, and returns their keys.
fn enqueue_extensions(
    extensions: &[Store<Extension>],
    router: &Router,
    filter: impl Fn(&Extension) -> bool,
) -> BTreeSet<ObjectKey> {
    let mut enqueued = BTreeSet::new();
    for extension in extensions.iter().flat_map(|store| store.state_filter(&filter)) {
        router.enqueue_extension(&extension);
        enqueued.insert(ObjectKey::of(&*extension));
    }
    enqueued
}

/// Returns whether an Extension has packages of one of these catalogs.
fn uses_catalogs(extension: &Extension, catalogs: &BTreeSet<ObjectKey>, platform: &str) -> bool {
    let (spec, own) = (&extension.spec, extension.namespace().unwrap_or_default());
    let of_versions = spec.versions.iter().filter_map(|version| version.source.catalog.as_ref());
    let followed = spec.follow_kubernetes.as_ref().and_then(|follow| follow.catalog.as_ref());
    let key = |reference| ObjectKey::referenced::<ExtensionCatalog>(reference, &own, platform);
    of_versions.chain(followed).map(key).any(|catalog| catalogs.contains(&catalog))
}

fn uses_sources(extension: &Extension) -> bool {
    let spec = &extension.spec;
    spec.versions.iter().any(|version| version.source.source_ref.is_some())
        || spec.follow_kubernetes.as_ref().is_some_and(|follow| follow.source_ref.is_some())
}

/// Returns the add-ons of a cluster that are being changed.
fn changing(shared: &Shared) -> BusyAddons {
    let (all_kinds, operations) = (shared.all_kinds.clone(), shared.release_caches.operations.clone());
    Box::new(move |cluster| {
        let all = all_kinds.releases(cluster).into_iter();
        all.filter(|(uid, _)| operations.running(uid).is_some()).map(|(_, name)| name).collect()
    })
}

/// Serves hooks, if they are enabled, until the returned value is dropped. If they are disabled, deletes the registration of an
/// earlier manager.
async fn serve_hooks(
    tasks: &mut Tasks,
    shared: &Shared,
    resolver: &Arc<Resolver>,
    caches: &ManagementCaches,
) -> Result<Option<HookServer>, StartupError> {
    let Some(options) = shared.hooks.clone() else {
        let (namespace, filter) = (shared.scope.namespace.clone(), shared.watch_filter.clone());
        tasks.spawn(hooks::unregister_earlier(shared.client.clone(), namespace, filter));
        return Ok(None);
    };
    let answers: Arc<dyn HookHandler> = Arc::new(ExtensionHooks {
        pending_operations: PendingOperations(changing(shared)),
        resolver: resolver.clone(),
        clusters: caches.clusters.clone(),
        all_kinds: shared.all_kinds.clone(),
    });
    let (namespace, filter) = (shared.scope.namespace.as_deref(), shared.watch_filter.as_deref());
    hooks::serve(shared.client.clone(), options, namespace, filter, answers).await.map(Some)
}

fn watch_extensions(
    shared: &Shared,
    scope: &Scope,
    writer: Writer<Extension>,
    registry: &ExtensionRegistry,
) -> FirstList {
    let (registry, router) = (registry.clone(), shared.router.clone());
    let resource = ApiResource::erase::<Extension>(&());
    watch(shared.client.clone(), scope, &resource, writer, move |change: &Change<'_, Extension>| {
        match change {
            Change::Applied(extension) => {
                registry.insert_pending(&extension.namespace().unwrap_or_default(), &extension.name_any());
            }
            Change::Deleted(extension) => {
                registry.remove(&extension.namespace().unwrap_or_default(), &extension.name_any());
            }
        }
        router.on_extension(change);
    })
}
