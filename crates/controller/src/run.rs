//! Runs the manager: its options, endpoints and leadership.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
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
use chandler_workload::Connections;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use semver::Version;
use tokio::sync::watch as channel;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Election, HookOptions, StartupError,
    caches::AllKinds,
    clusters::{self, Clusters},
    controllers::{Controllers, Handles},
    events::Events,
    extension::{ConfigMapKey, Platform},
    leader::LeaderThread,
    metrics::{Metrics, Sources},
    operations::Operations,
    caaph,
    references::References,
    release::{ReleaseCaches, ReconcileStates, NamedCatalogs},
    routing::Router,
    server::{self, Served},
    signatures::SignaturePolicySource,
    tasks::Tasks,
    watch::Scope,
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
    /// Where that version is release_caches, if it is not given.
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
    pub router: Router,
    pub all_kinds: AllKinds,
    pub release_caches: ReleaseCaches,
    pub packages: Arc<Packages>,
    pub tool: PackageTool,
    pub events: Events,
    pub metrics: Metrics,
    pub poll_interval: Duration,
    pub parameters_interval: Duration,
    pub platform_version_from: Option<ConfigMapKey>,
    pub hooks: Option<HookOptions>,
}

/// Caches of the management cluster besides placements and release objects.
#[derive(Clone)]
pub struct ManagementCaches {
    pub clusters: Clusters,
    pub references: References,
    pub catalogs: NamedCatalogs,
}

/// Runs the controllers until `stop` fires.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), StartupError> {
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
    caaph::check(&client).await?;
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
    let packages = Arc::new(Packages::new(PackageStore::open(store)?, sources));
    let (controllers, handles) =
        Controllers::new(&scope, watch_filter.as_deref(), platform, &packages, &metrics);
    let Handles { router, all_kinds, catalogs } = handles;
    let shared = Shared {
        events: Events::new(client.clone()),
        router,
        all_kinds,
        release_caches: ReleaseCaches {
            reconcile_states: ReconcileStates::default(),
            operations: Operations::new(limits, metrics.clone()),
            connections: connections.clone(),
        },
        metrics,
        tool: PackageTool::new(Supervisor::new(supervisor)),
        packages,
        client,
        scope,
        watch_filter,
        poll_interval,
        parameters_interval,
        platform_version_from,
        hooks,
    };
    let ready = Arc::new(AtomicBool::new(false));
    let sources = Sources {
        tool: shared.tool.clone(),
        connections,
        packages: shared.packages.clone(),
        all_kinds: shared.all_kinds.clone(),
        catalogs,
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
    let (tool, metrics) = (shared.tool.clone(), shared.metrics.clone());
    let work = async |tasks: &mut Tasks| {
        metrics.leads();
        Box::pin(controllers.run(tasks, shared, changes, ready)).await
    };
    let ended = if let Some(election) = election {
        lead(election, &tool, work, &stop).await
    } else {
        stop.run_until_cancelled(work(&mut Tasks::default())).await.unwrap_or(Ok(()))
    };
    tracing::info!("stopping");
    ended
}

/// Before anything can be installed, and from then on.
async fn demand_signatures(shared: &Shared, from: ConfigMapKey) -> AbortOnDropHandle<()> {
    let (client, packages) = (shared.client.clone(), shared.packages.clone());
    let (demands, every) = (SignaturePolicySource { client, packages, from }, shared.parameters_interval);
    let known = demands.read(None).await;
    AbortOnDropHandle::new(tokio::spawn(async move { demands.follow(known, every).await }))
}

/// How long tasks may take to end before the Lease is left to run out.
const STOPPING: Duration = Duration::from_secs(5);

/// Works while it leads. Whoever may not act any more stops its driver before anyone else may begin.
async fn lead(
    election: Election,
    tool: &PackageTool,
    work: impl AsyncFnOnce(&mut Tasks) -> Result<(), StartupError>,
    stop: &CancellationToken,
) -> Result<(), StartupError> {
    let mut leader = LeaderThread::start(election)?;
    let Some(won) = stop.run_until_cancelled(leader.acquired()).await else { return Ok(()) };
    won?;
    let mut tasks = Tasks::default();
    let (ended, leads) = tokio::select! {
        ended = work(&mut tasks) => (ended, true),
        why = leader.lost() => (Err(StartupError::LostLeadership(why)), false),
        () = stop.cancelled() => (Ok(()), true),
    };
    tasks.abort();
    tool.supervisor().close().await;
    if leads {
        // A task that does not end in time may still write: the Lease then runs out by itself.
        if tokio::time::timeout(STOPPING, tasks.join()).await.is_ok() {
            leader.resign().await;
        }
    }
    ended
}

/// Says at once what is missing, instead of watching what will never come.
async fn check_served(client: &Client, scope: &Scope) -> Result<(), StartupError> {
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
            .map_err(|source| StartupError::NotServed { kind, source })?;
    }
    Ok(())
}
