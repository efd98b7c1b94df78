//! Wires the controllers of Extensions, of their instances and of Clusters.

use std::sync::Arc;

use chandler_api::extensions::{Extension, ExtensionInstance};
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{Store, store::Writer},
};

use super::{
    ClusterContext, ConfigMapKey, ExtensionContext, Instances, Last, Offers, Packaged, Platform, Resolutions,
    Shelf, Values, answers::ExtensionAnswers, catalog_offers::CatalogOffers, cluster, publish,
};
use crate::{
    StartupError,
    hooks::{self, Answers, Changing, Serving, UnderWay},
    metrics::Metrics,
    pair::{Pair, WatchedPair},
    parameters::ParameterSources,
    placement::Templates,
    queue::{self, Queue},
    routing::ScopedQueue,
    run::{ManagementCaches, Shared},
    scoped::Scoped,
    status,
    sync::Mutex,
    tasks::Tasks,
    watch::{Change, FirstList, Scope, watch},
};

/// The kind of Clusters, for metrics.
pub const CLUSTER: &str = "Cluster";

/// The controllers of Extensions, of their instances and of Clusters.
pub struct ExtensionControllers {
    platform: Platform,
    shelf: Shelf,
    extensions: Vec<Scoped<Extension>>,
    cluster_queue: Queue<DynamicObject>,
}

/// The same, watched.
pub struct WatchedExtensions {
    platform: Platform,
    shelf: Shelf,
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
        (Self { platform, shelf: Shelf::default(), extensions, cluster_queue }, queues)
    }

    /// Starts to watch Extensions.
    pub fn watch(self, shared: &Shared) -> WatchedExtensions {
        let Self { platform, shelf, extensions, cluster_queue } = self;
        let start = |Scoped { scope, store, writer, queue }| {
            ((store, queue), watch_extensions(shared, &scope, writer, &shelf))
        };
        let (extensions, first_lists) = extensions.into_iter().map(start).unzip();
        WatchedExtensions { platform, shelf, extensions, first_lists, cluster_queue }
    }
}

impl WatchedExtensions {
    /// Returns when everything has been listed; `false` if a watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        for list in &mut self.first_lists {
            if !list.is_complete().await {
                return false;
            }
        }
        true
    }

    /// Runs the controllers. Hooks are served until what it returns is dropped.
    pub async fn run(
        self,
        tasks: &mut Tasks,
        shared: &Shared,
        pair: WatchedPair<ExtensionInstance>,
        caches: &ManagementCaches,
        templates: Templates,
    ) -> Result<Option<Serving>, StartupError> {
        let Self { platform, shelf, extensions, first_lists: _, cluster_queue } = self;
        if let Some(from) = &shared.platform_version_from {
            // Before anything is refused for want of it.
            platform.read(&shared.client, from).await;
        }
        let resolutions = Arc::new(resolutions(shared, pair.pair(), caches, &platform, &shelf));
        let serving = serve_hooks(shared, &resolutions, caches).await?;
        let compose = instances(shared, caches, templates, resolutions.clone());
        pair.run(tasks, shared, caches, Box::new(compose));
        let cluster_context = Arc::new(ClusterContext {
            client: shared.client.clone(),
            resolutions,
            all_kinds: shared.all_kinds.clone(),
            events: shared.events.clone(),
        });
        let (clusters, metrics) = (caches.clusters.store(), shared.metrics.clone());
        tasks.spawn(queue::run(
            CLUSTER,
            clusters,
            cluster_queue,
            metrics,
            cluster_context,
            cluster::reconcile,
        ));
        let publishing = Arc::new(ExtensionContext {
            client: shared.client.clone(),
            shelf,
            offers: Offers { packages: shared.packages.clone(), catalogs: caches.catalogs.clone() },
            poll_interval: shared.poll_interval,
            router: shared.router.clone(),
        });
        for (store, queue) in extensions {
            let (kind, metrics) = (status::kind::<Extension>(), shared.metrics.clone());
            tasks.spawn(queue::run(kind, store, queue, metrics, publishing.clone(), publish::reconcile));
        }
        if let Some(from) = shared.platform_version_from.clone() {
            tasks.spawn(follow_platform(shared, platform, from));
        }
        Ok(serving)
    }
}

fn resolutions(
    shared: &Shared,
    instances: &Pair<ExtensionInstance>,
    caches: &ManagementCaches,
    platform: &Platform,
    shelf: &Shelf,
) -> Resolutions {
    Resolutions {
        references: caches.references.clone(),
        instances: instances.placements(),
        releases: instances.releases(),
        shelf: shelf.clone(),
        offers: CatalogOffers::new(caches.catalogs.clone()),
        platform: platform.clone(),
        router: shared.router.clone(),
        last: Last::default(),
        metrics: shared.metrics.clone(),
    }
}

fn instances(
    shared: &Shared,
    caches: &ManagementCaches,
    templates: Templates,
    resolutions: Arc<Resolutions>,
) -> Instances {
    Instances {
        resolutions,
        values: Values {
            client: shared.client.clone(),
            templates,
            sources: ParameterSources::new(shared.client.clone()),
            packaged: Packaged::new(shared.packages.clone(), caches.catalogs.clone()),
            evaluated: Mutex::default(),
        },
        clusters: caches.clusters.clone(),
        parameters_interval: shared.parameters_interval,
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

/// Returns the add-ons of a cluster that are being changed.
fn changing(shared: &Shared) -> Changing {
    let (all_kinds, operations) = (shared.all_kinds.clone(), shared.kept.operations.clone());
    Box::new(move |cluster| {
        let all = all_kinds.releases(cluster).into_iter();
        all.filter(|(uid, _)| operations.running(uid).is_some()).map(|(_, name)| name).collect()
    })
}

/// Serves hooks, if they are wanted, until what it returns is dropped.
async fn serve_hooks(
    shared: &Shared,
    resolutions: &Arc<Resolutions>,
    caches: &ManagementCaches,
) -> Result<Option<Serving>, StartupError> {
    let Some(options) = shared.hooks.clone() else { return Ok(None) };
    let answers: Arc<dyn Answers> = Arc::new(ExtensionAnswers {
        under_way: UnderWay(changing(shared)),
        resolutions: resolutions.clone(),
        clusters: caches.clusters.clone(),
    });
    let (namespace, filter) = (shared.scope.namespace.as_deref(), shared.watch_filter.as_deref());
    hooks::serve(shared.client.clone(), options, namespace, filter, answers).await.map(Some)
}

fn watch_extensions(shared: &Shared, scope: &Scope, writer: Writer<Extension>, shelf: &Shelf) -> FirstList {
    let (shelf, router) = (shelf.clone(), shared.router.clone());
    let resource = ApiResource::erase::<Extension>(&());
    watch(shared.client.clone(), scope, &resource, writer, move |change: &Change<'_, Extension>| {
        match change {
            Change::Applied(extension) => {
                shelf.awaits(&extension.namespace().unwrap_or_default(), &extension.name_any());
            }
            Change::Deleted(extension) => {
                shelf.remove(&extension.namespace().unwrap_or_default(), &extension.name_any());
            }
        }
        router.on_extension(change);
    })
}
