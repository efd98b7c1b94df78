//! Runs the manager: its options, endpoints and leadership.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use chandler_api::{
    extensions::{AddonPolicy, Extension, ExtensionCatalog, Source, SyncObject},
    tunnel::ClusterTunnel,
};
use chandler_core::{
    addresses::AddressPolicy,
    failure::{Category, Failure},
    schedule::Limits,
    tenancy::DefaultAccount,
    tool_limits::ToolLimits,
    tunnel::ProxyPolicy,
};
use chandler_source::{Packages, SourceOptions, Store as PackageStore};
use chandler_telemetry::RequestCounter;
use chandler_tool::{ProcessUser, Supervisor, SupervisorConfig, TemplateService, Tools};
use chandler_workload::{Connections, RecordsOf};
use futures::{FutureExt as _, future::BoxFuture};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use semver::Version;
use tokio::sync::watch as channel;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Election, HookOptions, StartupError, caapf, caaph,
    caches::AllKinds,
    catalog::Catalogs,
    clusters::{self, Clusters},
    controllers::{Controllers, Handles},
    events::Events,
    extension::{ConfigMapKey, Platform},
    hooks,
    leader::{LeaderThread, fence},
    metrics::{Metrics, Sources},
    operations::{Operations, drain_on_stop},
    quotas::Quotas,
    references::References,
    release::{NamedCatalogs, ReconcileStates, ReleaseCaches},
    routing::Router,
    server::{self, Served},
    signatures::SignaturePolicySource,
    sources::{ReceiverOptions, SourcePackages},
    tasks::Tasks,
    tenancies::{self, Tenancies},
    tunnel::{TunnelOptions, Tunnels},
    watch::Scope,
};

/// How the processes of package tools and of the template service run.
#[derive(Clone, Debug)]
pub struct ToolOptions {
    /// Their environment, besides the addresses that they may connect to.
    pub environment: Vec<(String, String)>,
    pub limits: ToolLimits,
    /// The user and the group. `None` means those of the manager.
    pub user: Option<(u32, u32)>,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self { environment: Vec::new(), limits: ToolLimits::new(None, 4), user: None }
    }
}

/// How the controllers run.
#[derive(Debug)]
pub struct Options {
    /// `None` means all namespaces.
    pub namespace: Option<String>,
    /// Only placements whose watch-filter label has this value, and their releases. `None` means all.
    pub watch_filter: Option<String>,
    /// The binaries of the package tools. The package format selects one of them.
    pub tools: Vec<PathBuf>,
    /// The binary that serves value templates.
    pub templates: PathBuf,
    /// How these processes run.
    pub tool_options: ToolOptions,
    /// Their log level, which may change later.
    pub tool_log_level: channel::Receiver<&'static str>,
    /// Folder of the package store.
    pub store: PathBuf,
    /// Options for requests to repositories and registries.
    pub sources: SourceOptions,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub address: SocketAddr,
    pub limits: Limits,
    pub quotas: Quotas,
    /// Whether the health of releases is observed, unless a policy turns it off. `false` overrides policies.
    pub health: bool,
    /// How often releases without a version poll for a newer one.
    pub poll_interval: Duration,
    /// Shorter intervals of Sources are treated like this one.
    pub source_min_interval: Duration,
    /// The namespace whose Extensions and catalogs are available to all namespaces.
    pub platform_namespace: String,
    /// The version that Extensions with `lifecycle: Platform` must support.
    pub platform_version: Option<Version>,
    /// The ConfigMap key with that version, if it is not given.
    pub platform_version_from: Option<ConfigMapKey>,
    /// The ConfigMap key with the signature policy. `None` means that no package must be signed.
    pub verify_policy: Option<ConfigMapKey>,
    /// How often these ConfigMaps and the sources of parameters are polled. The ConfigMaps are not watched, and sources only
    /// where that is allowed.
    pub parameters_interval: Duration,
    /// Counts the requests of the client that the controllers get.
    pub requests: RequestCounter,
    /// How long running operations may take to end when the manager stops, before they are canceled.
    pub drain_timeout: Duration,
    /// After this time, a watch of a workload cluster that has sent nothing is opened again.
    pub watch_silence: Duration,
    /// `None` means that this process is the only one.
    pub election: Option<Election>,
    /// `None` means that no runtime hooks are served.
    pub hooks: Option<HookOptions>,
    /// How long the deletion of a Cluster waits until the releases that own resources outside of it are uninstalled.
    pub uninstall_timeout: Duration,
    /// `None` means that no webhooks are received.
    pub receiver: Option<ReceiverOptions>,
    /// Whether Clusters are handed over to Fleet.
    pub fleet: bool,
    /// `None` means that there are no tunnels.
    pub tunnel: Option<TunnelOptions>,
    /// The proxies that kubeconfigs may name.
    pub proxies: ProxyPolicy,
    /// The addresses that API servers of workload clusters, and their proxies, may have.
    pub addresses: AddressPolicy,
    /// Whether a Secret with a login that another namespace uses must name the hosts that the login may be sent to.
    pub require_login_hosts: bool,
    /// The ServiceAccount of workload clusters as which objects of releases are written that name none.
    pub default_workload_account: Option<DefaultAccount>,
    /// Whether AddonTenancies are not read.
    pub ignore_tenancies: bool,
}

/// The parts of the manager that all controllers share.
#[derive(Clone)]
pub struct Shared {
    pub client: Client,
    pub scope: Scope,
    pub watch_filter: Option<String>,
    pub router: Router,
    pub all_kinds: AllKinds,
    pub release_caches: ReleaseCaches,
    pub packages: Arc<Packages>,
    pub tools: Tools,
    pub template_service: TemplateService,
    pub events: Events,
    pub metrics: Metrics,
    pub quotas: Quotas,
    pub health: bool,
    pub poll_interval: Duration,
    pub source_min_interval: Duration,
    pub parameters_interval: Duration,
    pub platform_version_from: Option<ConfigMapKey>,
    pub hooks: Option<HookOptions>,
    pub uninstall_timeout: Duration,
    pub receiver: Option<ReceiverOptions>,
    pub fleet: bool,
    pub require_login_hosts: bool,
    pub tenancies: Tenancies,
    /// Whether AddonTenancies are watched.
    pub has_tenancies: bool,
}

/// Caches of the management cluster besides placements and release objects.
#[derive(Clone)]
pub struct ManagementCaches {
    pub clusters: Clusters,
    pub tunnels: Tunnels,
    pub references: References,
    pub catalogs: NamedCatalogs,
    pub source_packages: SourcePackages,
}

/// Returns the package tools and the template service; none of them is started yet. They connect to allowed addresses only.
pub fn supervise(
    tools: Vec<PathBuf>,
    templates: PathBuf,
    store: &Path,
    options: ToolOptions,
    addresses: &AddressPolicy,
    log_level: &channel::Receiver<&'static str>,
) -> (Tools, TemplateService) {
    let ToolOptions { mut environment, limits, user } = options;
    environment.push(addresses.environment());
    let configured = |config| SupervisorConfig {
        environment: environment.clone(),
        log_level: log_level.clone(),
        soft_memory_limit: limits.soft,
        hard_memory_limit: limits.hard,
        user: user.map(|(uid, gid)| ProcessUser { uid, gid }),
        ..config
    };
    let tools = tools.into_iter().map(|tool| configured(SupervisorConfig::new(tool)));
    let number = |processes| usize::try_from(processes).unwrap_or(usize::MAX);
    let templates = configured(SupervisorConfig::templates(templates));
    let templates = Supervisor::limited(templates, number(limits.templates));
    (Tools::new(tools, number(limits.processes), &store.join("tools")), TemplateService::new(templates))
}

/// Runs the controllers until `stop` fires. Boxed: the code of a future is compiled where it is polled or
/// boxed, so that without the box all controllers would be compiled with the program, as one unit.
pub fn run(
    client: Client,
    options: Options,
    stop: CancellationToken,
) -> BoxFuture<'static, Result<(), StartupError>> {
    run_controllers(client, options, stop).boxed()
}

async fn run_controllers(
    client: Client,
    options: Options,
    stop: CancellationToken,
) -> Result<(), StartupError> {
    let Options {
        namespace,
        watch_filter,
        tools,
        templates,
        tool_options,
        tool_log_level,
        store,
        mut sources,
        address,
        limits,
        quotas,
        health,
        poll_interval,
        source_min_interval,
        platform_namespace,
        platform_version,
        platform_version_from,
        verify_policy,
        parameters_interval,
        requests,
        drain_timeout,
        watch_silence,
        election,
        hooks,
        uninstall_timeout,
        receiver,
        fleet,
        tunnel,
        proxies,
        addresses,
        require_login_hosts,
        default_workload_account,
        ignore_tenancies,
    } = options;
    let platform = Platform::new(platform_namespace, platform_version);
    let scope = Scope { namespace, labels: None };
    // A cached index must not be older than the poll interval.
    sources.limits.cache_ttl = sources.limits.cache_ttl.min(poll_interval);
    let (tools, template_service) =
        supervise(tools, templates, &store, tool_options, &addresses, &tool_log_level);
    let records = records_of(&tools);
    let (connections, changes) = Connections::new(client.clone(), records, watch_silence, proxies, addresses);
    let metrics = Metrics::new();
    let packages = Arc::new(Packages::new(PackageStore::open(store)?, sources));
    let (controllers, Handles { router, all_kinds, catalogs, tunnels }) =
        Controllers::new(&scope, watch_filter.as_deref(), platform, tunnel.clone(), &packages, &metrics);
    check_served(&client, &scope, controllers.resources(), tunnel.is_some()).await?;
    check_other_providers(&client, fleet).await?;
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
        tools,
        template_service,
        packages,
        tenancies: Tenancies::new(client.clone(), default_workload_account),
        has_tenancies: tenancies::are_watched(&client, ignore_tenancies).await?,
        client,
        scope,
        watch_filter,
        quotas,
        health,
        poll_interval,
        source_min_interval,
        parameters_interval,
        platform_version_from,
        hooks,
        uninstall_timeout,
        receiver,
        fleet,
        require_login_hosts,
    };
    let (ready, standby) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let sources = shared.metric_sources(connections, catalogs, tunnels, requests);
    let address = server::serve(address, shared.served(sources, &ready, &standby)).await?;
    tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    let _collecting = shared.collecting_garbage();
    let _demanding = demand_signatures(&shared, verify_policy).await;
    let (tools, templates) = (shared.tools.clone(), shared.template_service.clone());
    let (metrics, stopped) = (shared.metrics.clone(), shared.stopped(stop.clone(), drain_timeout));
    let work = async |tasks: &mut Tasks| {
        metrics.leads();
        Box::pin(controllers.run(tasks, shared, changes, ready)).await
    };
    let Some(election) = election else {
        let mut tasks = Tasks::default();
        return tokio::select! {
            ended = work(&mut tasks) => ended,
            () = stopped => Ok(()),
        };
    };
    Box::pin(lead(election, standby, &tools, &templates, work, &stop, stopped)).await
}

impl Shared {
    /// Returns a future that waits until `stop` fires, drains the operations, and deletes the registration of the hooks if it has
    /// to end with this manager. Must be polled by the leader only.
    fn stopped(&self, stop: CancellationToken, drain_timeout: Duration) -> impl Future<Output = ()> + use<> {
        let operations = self.release_caches.operations.clone();
        let (namespace, filter) = (self.scope.namespace.clone(), self.watch_filter.clone());
        let unregister = hooks::on_stop(self.client.clone(), self.hooks.clone(), namespace, filter);
        async move {
            drain_on_stop(&stop, &operations, drain_timeout).await;
            unregister.await;
        }
    }

    fn served(&self, sources: Sources, ready: &Arc<AtomicBool>, standby: &Arc<AtomicBool>) -> Served {
        let (ready, standby) = (ready.clone(), standby.clone());
        Served { metrics: self.metrics.clone(), sources, ready, standby }
    }

    /// Removes packages that are not used any more, until the handle is dropped.
    fn collecting_garbage(&self) -> AbortOnDropHandle<()> {
        let packages = self.packages.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { packages.collect_garbage().await }))
    }

    /// Returns what the metrics are read from.
    fn metric_sources(
        &self,
        connections: Connections,
        catalogs: Catalogs,
        tunnels: Tunnels,
        requests: RequestCounter,
    ) -> Sources {
        Sources {
            tools: self.tools.clone(),
            templates: self.template_service.clone(),
            connections,
            packages: self.packages.clone(),
            all_kinds: self.all_kinds.clone(),
            catalogs,
            tunnels,
            requests,
        }
    }
}

/// Returns where each tool records its releases.
pub fn records_of(tools: &Tools) -> RecordsOf {
    let tools = tools.clone();
    Arc::new(move |id| {
        let tool = tools.get(id).cloned();
        async move {
            let tool =
                tool.ok_or_else(|| Failure::new(Category::Internal, "there is no such package tool"))?;
            Ok(tool.description().await?.records.clone())
        }
        .boxed()
    })
}

/// Reads the signature policy, if there is one, once before anything is installed, then polls it.
async fn demand_signatures(shared: &Shared, from: Option<ConfigMapKey>) -> Option<AbortOnDropHandle<()>> {
    let from = from?;
    let (client, packages) = (shared.client.clone(), shared.packages.clone());
    let (demands, every) = (SignaturePolicySource { client, packages, from }, shared.parameters_interval);
    let known = demands.read(None).await;
    Some(AbortOnDropHandle::new(tokio::spawn(async move { demands.follow(known, every).await })))
}

/// How long tasks may take to end before the Lease is left to run out.
const STOPPING: Duration = Duration::from_secs(5);

/// Works while it leads. A manager that loses the Lease stops its package tools before another manager may start.
async fn lead(
    election: Election,
    standby: Arc<AtomicBool>,
    tools: &Tools,
    templates: &TemplateService,
    work: impl AsyncFnOnce(&mut Tasks) -> Result<(), StartupError>,
    stop: &CancellationToken,
    stopped: impl Future<Output = ()>,
) -> Result<(), StartupError> {
    let mut leader = LeaderThread::start(election, standby)?;
    let Some(won) = stop.run_until_cancelled(leader.acquired()).await else { return Ok(()) };
    won?;
    fence(tools, leader.lease_until())?;
    let mut tasks = Tasks::default();
    let (ended, leads) = tokio::select! {
        ended = work(&mut tasks) => (ended, true),
        why = leader.lost() => (Err(StartupError::LostLeadership(why)), false),
        () = stopped => (Ok(()), true),
    };
    tasks.abort();
    tokio::join!(tools.close(), templates.supervisor().close());
    if leads {
        // A task that does not end in time may still write: the Lease then runs out by itself.
        if tokio::time::timeout(STOPPING, tasks.join()).await.is_ok() {
            leader.resign().await;
        }
    }
    ended
}

/// Fails while a provider runs that reconciles the same objects.
async fn check_other_providers(client: &Client, fleet: bool) -> Result<(), StartupError> {
    caaph::check(client).await?;
    if fleet { caapf::check(client).await } else { Ok(()) }
}

/// Fails early if a kind is not served, instead of retrying a watch forever.
async fn check_served(
    client: &Client,
    scope: &Scope,
    placements_and_releases: Vec<ApiResource>,
    tunnels: bool,
) -> Result<(), StartupError> {
    let others = [
        ApiResource::erase::<Extension>(&()),
        ApiResource::erase::<ExtensionCatalog>(&()),
        ApiResource::erase::<Source>(&()),
        ApiResource::erase::<SyncObject>(&()),
        ApiResource::erase::<AddonPolicy>(&()),
        clusters::resource(),
    ];
    let tunnels = tunnels.then(|| ApiResource::erase::<ClusterTunnel>(&()));
    for resource in placements_and_releases.into_iter().chain(others).chain(tunnels) {
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
