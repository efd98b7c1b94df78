//! Wires it all together: stores, queues, reconcilers, endpoints.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    extensions::{AddonRelease, Extension, ExtensionCatalog, ExtensionInstance},
};
use chandler_core::schedule::Limits;
use chandler_source::{Packages, SourceOptions, Store as PackageStore};
use chandler_telemetry::Requests;
use chandler_tool::{PackageTool, Supervisor, SupervisorConfig};
use chandler_workload::{Connections, InventoryChange};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use semver::Version;
use tokio::sync::{mpsc, watch as channel};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Election, Error, HookOptions,
    catalog::{self, CatalogOptions, Catalogs},
    clusters::{self, Clusters},
    events::Events,
    extension::{ConfigMapKey, Department, Platform},
    caches::Faces,
    metrics::{Metrics, Sources},
    operations::Operations,
    pair::Pair,
    placement::Templates,
    predecessor,
    references::References,
    release::{Kept, Memories, NamedCatalogs},
    server::{self, Served},
    signatures::SignatureDemands,
    watch::{Scope, Watched, watch},
};

/// How the controllers run.
#[derive(Debug)]
pub struct Options {
    /// None: all namespaces.
    pub namespace: Option<String>,
    /// Only placements whose watch-filter label has this value, and their releases. None: all.
    pub watch_filter: Option<String>,
    /// The package tool's binary.
    pub tool: PathBuf,
    /// Further arguments for it.
    pub tool_arguments: Vec<String>,
    /// All that its environment holds.
    pub tool_environment: Vec<(String, String)>,
    /// What it has to log, now and later.
    pub tool_log_level: channel::Receiver<&'static str>,
    /// Folder of the package store.
    pub store: PathBuf,
    /// How repositories and registries are asked.
    pub sources: SourceOptions,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub address: SocketAddr,
    pub limits: Limits,
    /// How often a release that follows the newest version looks for it.
    pub poll_interval: Duration,
    /// The namespace whose Extensions and catalogs are everyone's.
    pub platform_namespace: String,
    /// The version that Extensions with `lifecycle: Platform` are held against.
    pub platform_version: Option<Version>,
    /// Where that version is kept, if it is not given.
    pub platform_version_from: Option<ConfigMapKey>,
    /// Where the platform keeps what it demands of signatures. None: it demands none.
    pub verify_policy: Option<ConfigMapKey>,
    /// How often these are read again, and the sources of parameters: none is watched.
    pub parameters_interval: Duration,
    /// Counts the requests of the client that the controllers get.
    pub requests: Requests,
    /// None: this process is the only one.
    pub election: Option<Election>,
    /// None: Cluster API does not ask.
    pub hooks: Option<HookOptions>,
}

/// What all controllers share.
#[derive(Clone)]
pub struct Shared {
    pub client: Client,
    pub scope: Scope,
    pub watch_filter: Option<String>,
    pub faces: Faces,
    pub kept: Kept,
    pub packages: Arc<Packages>,
    pub tool: PackageTool,
    pub events: Events,
    pub metrics: Metrics,
    pub poll_interval: Duration,
    pub parameters_interval: Duration,
    pub platform_version_from: Option<ConfigMapKey>,
    pub hooks: Option<HookOptions>,
}

/// What there is on the management cluster besides the objects of a face.
#[derive(Clone)]
pub struct Surroundings {
    pub clusters: Clusters,
    pub references: References,
    pub catalogs: NamedCatalogs,
}

/// Runs the controllers until `stop` fires.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let Options {
        namespace,
        watch_filter,
        tool,
        tool_arguments,
        tool_environment,
        tool_log_level,
        store,
        sources,
        address,
        limits,
        poll_interval,
        platform_namespace,
        platform_version,
        platform_version_from,
        verify_policy,
        parameters_interval,
        requests,
        election,
        hooks,
    } = options;
    let platform = Platform::new(platform_namespace, platform_version);
    let scope = Scope { namespace, labels: None };
    check_served(&client, &scope).await?;
    predecessor::check(&client).await?;
    let (connections, changes) = Connections::new(client.clone());
    let mut sources = sources;
    // Whoever wants to look more often wants to see more, too.
    sources.limits.fresh = sources.limits.fresh.min(poll_interval);
    let supervisor = SupervisorConfig {
        arguments: tool_arguments,
        environment: tool_environment,
        log_level: tool_log_level,
        ..SupervisorConfig::new(tool)
    };
    let metrics = Metrics::new();
    let shared = Shared {
        events: Events::new(client.clone()),
        faces: Faces::default(),
        kept: Kept {
            memories: Memories::default(),
            operations: Operations::new(limits, metrics.clone()),
            connections: connections.clone(),
        },
        metrics,
        tool: PackageTool::new(Supervisor::new(supervisor)),
        packages: Arc::new(Packages::new(PackageStore::open(store)?, sources)),
        client,
        scope,
        watch_filter,
        poll_interval,
        parameters_interval,
        platform_version_from,
        hooks,
    };
    let ready = Arc::new(AtomicBool::new(false));
    let catalogs = Arc::default();
    let sources = Sources {
        tool: shared.tool.clone(),
        connections,
        packages: shared.packages.clone(),
        faces: shared.faces.clone(),
        catalogs: Arc::clone(&catalogs),
        requests,
    };
    let served = Served { metrics: shared.metrics.clone(), sources, ready: ready.clone() };
    let address = server::serve(address, served).await?;
    tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    let packages = shared.packages.clone();
    let _collecting = AbortOnDropHandle::new(tokio::spawn(async move { packages.collect_regularly().await }));
    let _demanding = match verify_policy {
        Some(from) => Some(demand_signatures(&shared, from).await),
        None => None,
    };
    let (client, tool, metrics) = (shared.client.clone(), shared.tool.clone(), shared.metrics.clone());
    let controllers = Box::pin(controllers(shared, platform, changes, Told { ready, catalogs }));
    let work = async move {
        metrics.leads();
        controllers.await
    };
    let ended = if let Some(election) = election {
        lead(client, election, &tool, work, &stop).await
    } else {
        stop.run_until_cancelled(work).await.unwrap_or(Ok(()))
    };
    tracing::info!("stopping");
    ended
}

/// Before anything can be installed, and from then on.
async fn demand_signatures(shared: &Shared, from: ConfigMapKey) -> AbortOnDropHandle<()> {
    let (client, packages) = (shared.client.clone(), shared.packages.clone());
    let (demands, every) = (SignatureDemands { client, packages, from }, shared.parameters_interval);
    let known = demands.read(None).await;
    AbortOnDropHandle::new(tokio::spawn(async move { demands.follow(known, every).await }))
}

/// Works while it leads. Whoever may not act any more stops its driver before anyone else may begin.
async fn lead(
    client: Client,
    election: Election,
    tool: &PackageTool,
    work: impl Future<Output = Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Some(won) = stop.run_until_cancelled(election.win(client)).await else { return Ok(()) };
    let mut leadership = won?;
    let (ended, leads) = tokio::select! {
        ended = work => (ended, true),
        why = leadership.keep() => (Err(Error::LostLeadership(why)), false),
        () = stop.cancelled() => (Ok(()), true),
    };
    tool.supervisor().kill().await;
    if leads {
        leadership.resign().await;
    }
    ended
}

/// What the endpoints are told once there is something to tell.
struct Told {
    ready: Arc<AtomicBool>,
    catalogs: Arc<OnceLock<Catalogs>>,
}

/// Looks after all kinds.
async fn controllers(
    shared: Shared,
    platform: Platform,
    mut changes: mpsc::UnboundedReceiver<InventoryChange>,
    told: Told,
) -> Result<(), Error> {
    let (catalogs, looking_after_catalogs) = catalog::start(CatalogOptions {
        client: shared.client.clone(),
        scope: shared.scope.clone(),
        platform: platform.namespace.clone(),
        watch_filter: shared.watch_filter.clone(),
        packages: shared.packages.clone(),
        events: shared.events.clone(),
        metrics: shared.metrics.clone(),
    });
    // Told once.
    let _ = told.catalogs.set(catalogs.clone());
    let mut helm = Pair::<HelmChartProxy>::watch(&shared);
    let mut instances = Pair::<ExtensionInstance>::watch(&shared);
    let platform_namespace = platform.namespace.clone();
    let mut department = Department::open(&shared, platform);
    shared.faces.are(vec![helm.face(), instances.face()], department.watcher());
    let mut clusters = watch_clusters(&shared);
    let all = async {
        helm.is_complete().await
            && instances.is_complete().await
            && department.is_complete().await
            && catalogs.are_listed().await
            && clusters.is_complete().await
    };
    if !all.await {
        return Err(Error::WatchEnded);
    }
    let clusters = Clusters::new(clusters.store);
    let references = references(&shared, &clusters);
    told.ready.store(true, Ordering::Release);
    let templates = Templates {
        references: references.clone(),
        tool: shared.tool.clone(),
        metrics: shared.metrics.clone(),
    };
    let around = Surroundings {
        clusters,
        references,
        catalogs: NamedCatalogs {
            client: shared.client.clone(),
            catalogs: catalogs.clone(),
            platform: platform_namespace,
        },
    };
    let faces = shared.faces.clone();
    let mut published = shared.packages.changes();
    let following_sources = async {
        while published.changed().await.is_ok() {
            faces.source_changed();
        }
    };
    let mut offered = catalogs.changes();
    let following_catalogs = async {
        while offered.changed().await.is_ok() {
            faces.source_changed();
        }
    };
    let following = async {
        while let Some(change) = changes.recv().await {
            faces.release_touched(&change.cluster, change.release.as_ref());
        }
    };
    let department = department.run(shared.clone(), instances, around.clone(), templates.clone());
    let rest = async {
        tokio::join!(
            helm.run(shared, around, Box::new(templates)),
            looking_after_catalogs,
            following_catalogs,
            following,
            following_sources,
        );
    };
    tokio::select! {
        ended = department => ended,
        () = rest => Ok(()),
    }
}

fn watch_clusters(shared: &Shared) -> Watched<DynamicObject> {
    let (faces, resource) = (shared.faces.clone(), clusters::resource());
    watch(
        shared.client.clone(),
        &shared.scope,
        &resource,
        resource.clone(),
        move |cluster: &DynamicObject| {
            if let Some(key) = clusters::key(cluster) {
                faces.cluster_touched(&key, cluster.labels());
            }
        },
    )
}

/// A change of what a Cluster refers to is a change of the Cluster, as far as templates and charts look at it.
fn references(shared: &Shared, clusters: &Clusters) -> References {
    let (faces, clusters) = (shared.faces.clone(), clusters.clone());
    References::new(shared.client.clone(), shared.scope.clone(), move |key| {
        if let Some(cluster) = clusters.get(key) {
            faces.cluster_touched(key, cluster.labels());
        }
    })
}

/// Says at once what is missing, instead of watching what will never come.
async fn check_served(client: &Client, scope: &Scope) -> Result<(), Error> {
    let kinds = [
        ApiResource::erase::<HelmChartProxy>(&()),
        ApiResource::erase::<HelmReleaseProxy>(&()),
        ApiResource::erase::<Extension>(&()),
        ApiResource::erase::<ExtensionInstance>(&()),
        ApiResource::erase::<AddonRelease>(&()),
        ApiResource::erase::<ExtensionCatalog>(&()),
        clusters::resource(),
    ];
    for resource in kinds {
        let api: Api<DynamicObject> = match &scope.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let kind = format!("{} {}", resource.api_version, resource.kind);
        api.list_metadata(&ListParams::default().limit(1))
            .await
            .map_err(|source| Error::NotServed { kind, source })?;
    }
    Ok(())
}
