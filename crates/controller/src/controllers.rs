//! All controllers: their stores and queues are created first, then the router over them, then watches start, and when
//! these have listed everything, reconciles.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use chandler_api::capi::WATCH_FILTER_LABEL;
use chandler_source::Packages;
use chandler_workload::InventoryChange;
use kube::{
    api::{ApiResource, DynamicObject},
    runtime::reflector::store::Writer,
};
use tokio::sync::{mpsc, watch as channel};

use crate::{
    StartupError,
    caches::AllKinds,
    catalog::{CatalogControllers, Catalogs},
    clusters::{self, Clusters},
    extension::{CLUSTER, ExtensionControllers, Platform},
    fleet::{self, FleetInputs, FleetQueues},
    kinds::{ComposeServices, Kinds},
    locks::Mutex,
    metrics::Metrics,
    operations::follow_memory,
    parameters::ParameterSources,
    policies::{Policies, PolicyWriters},
    queue::Trigger,
    references::References,
    release::NamedCatalogs,
    routing::{Index, Queues, Router},
    run::{ManagementCaches, Shared},
    sources::{SourceControllers, SourcePackages, start_receiver},
    sync::{SyncContext, SyncController},
    tasks::Tasks,
    templates::{Evaluations, TemplateQuota, Templates},
    tunnel::{TunnelControllers, TunnelOptions, TunnelQueues, Tunnels},
    watch::{FirstList, Scope, are_complete, watch},
};

/// The stores and queues of all controllers.
pub struct Controllers {
    kinds: Kinds,
    policies: PolicyWriters,
    extensions: ExtensionControllers,
    catalogs: CatalogControllers,
    sources: SourceControllers,
    syncs: SyncController,
    /// `None` without tunnels.
    tunnels: Option<TunnelControllers>,
    clusters: Writer<DynamicObject>,
    /// The namespace whose catalogs and Sources are available everywhere.
    platform: String,
}

/// What others use of the controllers.
pub struct Handles {
    pub router: Router,
    pub all_kinds: AllKinds,
    pub catalogs: Catalogs,
    pub tunnels: Tunnels,
}

impl Controllers {
    pub fn new(
        scope: &Scope,
        watch_filter: Option<&str>,
        platform: Platform,
        tunnel: Option<TunnelOptions>,
        packages: &Arc<Packages>,
        metrics: &Metrics,
    ) -> (Self, Handles) {
        let index = Arc::new(Mutex::new(Index::new(&platform.namespace)));
        let scopes = scope.clone().and_platform(&platform.namespace);
        let (policies, policy_writers) = Policies::new(scopes.clone(), &platform.namespace);
        let kinds = Kinds::new(metrics, &index, &policies);
        let labels = watch_filter.map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
        let filtered = Scope { labels, ..scope.clone() };
        let (syncs, sync_queue) = SyncController::new(filtered.clone(), metrics);
        let filtered = filtered.and_platform(&platform.namespace);
        let (sources, source_queues) = SourceControllers::new(filtered.clone(), metrics);
        let (catalogs, catalog_queues) = CatalogControllers::new(filtered, packages.clone(), metrics);
        let (cluster_trigger, cluster_queue) = Trigger::new(CLUSTER, metrics);
        let namespace = platform.namespace.clone();
        let (extensions, extension_queues) =
            ExtensionControllers::new(scopes, platform, cluster_queue, metrics);
        let tunnel_queues = TunnelQueues::default();
        let tunnels =
            tunnel.map(|options| TunnelControllers::new(scope.clone(), options, &tunnel_queues, metrics));
        let queues = Queues {
            pairs: kinds.queues(),
            clusters: cluster_trigger,
            extensions: extension_queues,
            catalogs: catalog_queues,
            sources: source_queues,
            syncs: sync_queue,
            fleet: FleetQueues::default(),
            tunnels: tunnel_queues,
        };
        let handles = Handles {
            all_kinds: AllKinds::new(index.clone(), kinds.caches()),
            router: Router::new(index, queues),
            catalogs: catalogs.catalogs(),
            tunnels: tunnels.as_ref().map(TunnelControllers::tunnels).unwrap_or_default(),
        };
        let clusters = Writer::new(clusters::resource());
        let controllers = Self {
            kinds,
            policies: policy_writers,
            extensions,
            catalogs,
            sources,
            syncs,
            tunnels,
            clusters,
            platform: namespace,
        };
        (controllers, handles)
    }

    /// Returns the kinds of placements and releases that the API server has to serve.
    pub fn resources(&self) -> Vec<ApiResource> {
        self.kinds.resources()
    }

    /// Watches and reconciles in `tasks`. Sets `ready` when everything has been listed.
    pub async fn run(
        self,
        tasks: &mut Tasks,
        shared: Shared,
        changes: mpsc::UnboundedReceiver<InventoryChange>,
        ready: Arc<AtomicBool>,
    ) -> Result<(), StartupError> {
        let Self { kinds, policies, extensions, catalogs, sources, syncs, tunnels, clusters, platform } =
            self;
        // Nothing is reconciled before they are known: Sources and catalogs are from the start.
        if shared.has_tenancies {
            shared.tenancies.start(tasks, &shared.client, &shared.router).await?;
        }
        let tunnel_cache = tunnels.as_ref().map(TunnelControllers::tunnels).unwrap_or_default();
        let mut tunnels = tunnels.map(|tunnels| tunnels.watch(&shared));
        let catalog_cache = catalogs.catalogs();
        let sources = sources.start(tasks, &shared, &platform);
        catalogs.start(tasks, &shared, &sources);
        let Kinds { controllers, instances } = kinds;
        let mut policies = policies.watch(&shared);
        let mut watched: Vec<_> = controllers.into_iter().map(|kind| kind.watch(&shared)).collect();
        let mut extensions = extensions.watch(&shared);
        let cluster_cache = Clusters::new(clusters.as_reader(), shared.uninstall_timeout);
        let (trees, render) = (Arc::new(sources.clone()), Arc::new(shared.template_service.clone()));
        let mut syncs = syncs.watch(&shared, trees, render, platform.clone());
        let mut clusters = watch_clusters(&shared, clusters, syncs.context.clone());
        for kind in &mut watched {
            if !kind.is_complete().await {
                return Err(StartupError::WatchEnded);
            }
        }
        let complete = are_complete(&mut policies).await
            && extensions.is_complete().await
            && catalog_cache.wait_until_listed().await
            && sources.wait_until_listed().await
            && syncs.is_complete().await
            && clusters.is_complete().await
            && match &mut tunnels {
                Some(tunnels) => tunnels.is_complete().await,
                None => true,
            };
        if !complete {
            return Err(StartupError::WatchEnded);
        }
        ready.store(true, Ordering::Release);
        if let Some(options) = shared.receiver.clone() {
            let (client, router) = (shared.client.clone(), shared.router.clone());
            start_receiver(tasks, options, client, sources.clone(), router).await?;
        }
        let caches = ManagementCaches {
            clusters: cluster_cache,
            tunnels: tunnel_cache,
            references: References::new(shared.client.clone(), shared.scope.clone(), shared.router.clone()),
            catalogs: NamedCatalogs::new(shared.client.clone(), catalog_cache.clone(), platform)
                .under(shared.tenancies.clone()),
            source_packages: SourcePackages::new(
                sources,
                shared.packages.clone(),
                shared.template_service.clone(),
            ),
        };
        let templates = Templates {
            references: caches.references.clone(),
            service: shared.template_service.clone(),
            metrics: shared.metrics.clone(),
            evaluations: Evaluations::default(),
            quota: TemplateQuota::new(shared.quotas.template_time, shared.metrics.clone()),
        };
        if shared.fleet {
            tasks.spawn(fleet::run(fleet_inputs(&shared, &caches)));
        }
        if let Some(tunnels) = tunnels {
            tunnels.run(tasks, &shared, &caches);
        }
        follow(tasks, shared.packages.changes(), shared.router.clone(), Router::on_source);
        follow(tasks, catalog_cache.changes(), shared.router.clone(), Router::on_catalogs);
        tasks.spawn(follow_inventories(shared.router.clone(), changes));
        let (operations, tools) = (shared.release_caches.operations.clone(), shared.tools.clone());
        tasks.spawn(follow_memory(operations, move || tools.low_on_memory()));
        syncs.run(tasks, &shared);
        let (resolver, _hooks) = extensions.run(tasks, &shared, &instances, &caches).await?;
        let sources = ParameterSources::watching(shared.client.clone(), shared.router.clone());
        let services = ComposeServices { shared: &shared, caches: &caches, templates, sources, resolver };
        for kind in watched {
            kind.run(tasks, &services);
        }
        tasks.join().await;
        Ok(())
    }
}

fn fleet_inputs(shared: &Shared, caches: &ManagementCaches) -> FleetInputs {
    FleetInputs {
        client: shared.client.clone(),
        scope: shared.scope.clone(),
        router: shared.router.clone(),
        metrics: shared.metrics.clone(),
        clusters: caches.clusters.clone(),
        references: caches.references.clone(),
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

fn watch_clusters(shared: &Shared, writer: Writer<DynamicObject>, syncs: Arc<SyncContext>) -> FirstList {
    let (router, resource) = (shared.router.clone(), clusters::resource());
    watch(shared.client.clone(), &shared.scope, &resource, writer, move |change| {
        syncs.on_cluster(change, &router);
        router.on_cluster(change);
    })
}
