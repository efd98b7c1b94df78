//! All controllers: their stores and queues are created first, then the router over them, then watches start, and when
//! these have listed everything, reconciles.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use chandler_api::{addons::HelmChartProxy, capi::WATCH_FILTER_LABEL, extensions::ExtensionInstance};
use chandler_source::Packages;
use chandler_workload::InventoryChange;
use kube::{api::DynamicObject, runtime::reflector::store::Writer};
use tokio::sync::{mpsc, watch as channel};

use crate::{
    StartupError,
    caches::AllKinds,
    catalog::{CatalogControllers, Catalogs},
    clusters::{self, Clusters},
    extension::{CLUSTER, ExtensionControllers, Platform},
    metrics::Metrics,
    pair::{Pair, PairEnds, WatchedPair},
    placement::Templates,
    queue::Trigger,
    references::References,
    release::NamedCatalogs,
    routing::{Index, Queues, Router},
    run::{ManagementCaches, Shared},
    sync::Mutex,
    tasks::Tasks,
    watch::{FirstList, Scope, watch},
};

/// The stores and queues of all controllers.
pub struct Controllers {
    helm: (Pair<HelmChartProxy>, PairEnds<HelmChartProxy>),
    instances: (Pair<ExtensionInstance>, PairEnds<ExtensionInstance>),
    extensions: ExtensionControllers,
    catalogs: CatalogControllers,
    clusters: Writer<DynamicObject>,
    /// The namespace whose catalogs are available everywhere.
    platform: String,
}

/// What others use of the controllers.
pub struct Handles {
    pub router: Router,
    pub all_kinds: AllKinds,
    pub catalogs: Catalogs,
}

impl Controllers {
    pub fn new(
        scope: &Scope,
        watch_filter: Option<&str>,
        platform: Platform,
        packages: &Arc<Packages>,
        metrics: &Metrics,
    ) -> (Self, Handles) {
        let index = Arc::new(Mutex::new(Index::new(&platform.namespace)));
        let helm = Pair::new(metrics, &index);
        let instances = Pair::new(metrics, &index);
        let labels = watch_filter.map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
        let filtered = Scope { labels, ..scope.clone() };
        let (catalogs, catalog_queues) =
            CatalogControllers::new(filtered.and_platform(&platform.namespace), packages.clone(), metrics);
        let scopes = scope.clone().and_platform(&platform.namespace);
        let (cluster_trigger, cluster_queue) = Trigger::new(CLUSTER, metrics);
        let namespace = platform.namespace.clone();
        let (extensions, extension_queues) =
            ExtensionControllers::new(scopes, platform, cluster_queue, metrics);
        let queues = Queues {
            pairs: vec![helm.0.queues(), instances.0.queues()],
            clusters: cluster_trigger,
            extensions: extension_queues,
            catalogs: catalog_queues,
        };
        let handles = Handles {
            all_kinds: AllKinds::new(index.clone(), vec![helm.0.caches(), instances.0.caches()]),
            router: Router::new(index, queues),
            catalogs: catalogs.catalogs(),
        };
        let clusters = Writer::new(clusters::resource());
        (Self { helm, instances, extensions, catalogs, clusters, platform: namespace }, handles)
    }

    /// Watches and reconciles in `tasks`. Sets `ready` when everything has been listed.
    pub async fn run(
        self,
        tasks: &mut Tasks,
        shared: Shared,
        changes: mpsc::UnboundedReceiver<InventoryChange>,
        ready: Arc<AtomicBool>,
    ) -> Result<(), StartupError> {
        let Self { helm, instances, extensions, catalogs, clusters, platform } = self;
        let catalog_cache = catalogs.catalogs();
        catalogs.start(tasks, &shared);
        let mut helm = WatchedPair::start(&shared, helm.0, helm.1);
        let mut instances = WatchedPair::start(&shared, instances.0, instances.1);
        let mut extensions = extensions.watch(&shared);
        let cluster_cache = Clusters::new(clusters.as_reader());
        let mut clusters = watch_clusters(&shared, clusters);
        let complete = helm.is_complete().await
            && instances.is_complete().await
            && extensions.is_complete().await
            && catalog_cache.are_listed().await
            && clusters.is_complete().await;
        if !complete {
            return Err(StartupError::WatchEnded);
        }
        ready.store(true, Ordering::Release);
        let caches = ManagementCaches {
            clusters: cluster_cache,
            references: References::new(shared.client.clone(), shared.scope.clone(), shared.router.clone()),
            catalogs: NamedCatalogs {
                client: shared.client.clone(),
                catalogs: catalog_cache.clone(),
                platform,
            },
        };
        let templates = Templates {
            references: caches.references.clone(),
            tool: shared.tool.clone(),
            metrics: shared.metrics.clone(),
        };
        follow(tasks, shared.packages.changes(), shared.router.clone(), Router::on_source);
        follow(tasks, catalog_cache.changes(), shared.router.clone(), Router::on_catalogs);
        tasks.spawn(follow_inventories(shared.router.clone(), changes));
        helm.run(tasks, &shared, &caches, Box::new(templates.clone()));
        let _hooks = extensions.run(tasks, &shared, instances, &caches, templates).await?;
        tasks.join().await;
        Ok(())
    }
}

/// Calls `on_change` whenever a count of changes grows.
fn follow(tasks: &mut Tasks, mut changes: channel::Receiver<u64>, router: Router, on_change: fn(&Router)) {
    tasks.spawn(async move {
        while changes.changed().await.is_ok() {
            on_change(&router);
        }
    });
}

async fn follow_inventories(router: Router, mut changes: mpsc::UnboundedReceiver<InventoryChange>) {
    while let Some(change) = changes.recv().await {
        router.on_inventory(&change.cluster, change.release.as_ref());
    }
}

fn watch_clusters(shared: &Shared, writer: Writer<DynamicObject>) -> FirstList {
    let (router, resource) = (shared.router.clone(), clusters::resource());
    watch(shared.client.clone(), &shared.scope, &resource, writer, move |change| router.on_cluster(change))
}
