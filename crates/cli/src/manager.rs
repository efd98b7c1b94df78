//! `chandler manager`

use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use chandler_cli_support::programs;
use chandler_controller::{ConfigMapKey, Election, Options};
use chandler_core::{resolution::parse_version, schedule::Limits};
use chandler_source::{AddressPolicy, Retention, SourceOptions};
use chandler_telemetry::RequestCounter;
use chandler_workload::WATCH_SILENCE;
use clap::{ArgAction, Args};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use semver::Version;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    address_flags::{AddressFlags, AddressPolicies},
    connection::Connection,
    control,
    hooks::HookArgs,
    lease::LeaseArgs,
    logging::{self, LogFormat},
    quota_flags::QuotaFlags,
    receiver::ReceiverArgs,
    tenant_flags::TenantFlags,
    tool_flags::ToolFlags,
    traces::{self, TraceArgs},
    tunnel_flags::TunnelFlags,
};

/// Name of the leader election Lease.
pub const LEASE: &str = "chandler-leader";
/// Default directory of downloaded packages.
pub const DEFAULT_STORE: &str = "/var/cache/chandler";

#[derive(Debug, Args)]
pub struct ManagerArgs {
    #[command(flatten)]
    connection: Connection,
    /// Reconcile only objects in this namespace [default: all]
    #[arg(long)]
    namespace: Option<String>,
    /// Reconcile only objects whose label `cluster.x-k8s.io/watch-filter` has this value [default: all]
    #[arg(long, value_name = "VALUE")]
    watch_filter: Option<String>,
    /// Binary of a package tool; can be repeated, the package format selects the tool
    /// [default: chandler-helm beside this program]
    #[arg(long, env = "CHANDLER_TOOL")]
    tool: Vec<PathBuf>,
    /// Binary of the template service [default: the first --tool]
    #[arg(long, value_name = "PATH")]
    templates: Option<PathBuf>,
    #[command(flatten)]
    tool_flags: ToolFlags,
    /// Directory for downloaded packages
    #[arg(long, env = "CHANDLER_STORE", default_value = DEFAULT_STORE)]
    store: PathBuf,
    /// Maximum size of the store in MiB: packages, files of Sources, catalogs and downloads in progress; the least recently used
    /// packages of the namespace that uses most are removed first
    #[arg(long, default_value_t = Retention::default().bytes >> 20)]
    store_limit: u64,
    #[command(flatten)]
    tenants: TenantFlags,
    #[command(flatten)]
    addresses: AddressFlags,
    /// Listen address of /metrics, /healthz and /readyz
    #[arg(long, default_value = "127.0.0.1:8080")]
    metrics_address: SocketAddr,
    /// Maximum number of concurrent operations; operations that only wait do not count
    #[arg(long, default_value_t = Limits::default().overall)]
    concurrency: usize,
    /// Maximum number of concurrent operations per workload cluster
    #[arg(long, default_value_t = Limits::default().per_cluster)]
    concurrency_per_cluster: usize,
    /// Maximum number of workload clusters on which operations wait for objects to become ready; each operation that waits
    /// takes memory of the package tool
    #[arg(long, default_value_t = Limits::default().waiting_clusters)]
    concurrency_waiting_clusters: usize,
    #[command(flatten)]
    quotas: QuotaFlags,
    /// Interval in seconds at which to check for newer versions of releases without a pinned version
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    poll_seconds: u64,
    /// Shortest interval in seconds at which to poll the repository of a Source; a Source with a shorter interval is polled at
    /// this one
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    source_min_interval_seconds: u64,
    /// Watch the objects of releases on workload clusters to report whether they are healthy; `false` overrides policies
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    health: bool,
    #[command(flatten)]
    platform: PlatformArgs,
    /// ConfigMap with the signature policy for all packages: which must be signed, and by which identities [default:
    /// none]
    #[arg(long, value_name = "NAMESPACE/CONFIGMAP:KEY")]
    verify_policy: Option<ConfigMapKey>,
    /// Interval in seconds at which to read the sources in `parametersFrom`, the platform version and --verify-policy
    /// again
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    parameters_seconds: u64,
    /// Disable leader election; use it only if no other manager reconciles the same objects
    #[arg(long)]
    no_leader_election: bool,
    /// Namespace of the leader election Lease
    #[arg(long, env = "POD_NAMESPACE", default_value = "chandler-system")]
    leader_election_namespace: String,
    /// How many seconds running operations may take to end when the manager is stopped; then they are canceled
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    drain_seconds: u64,
    /// Open a watch again that has sent nothing for so many seconds; API servers send a bookmark every minute, so it was
    /// probably dropped on its way
    #[arg(long, default_value_t = WATCH_SILENCE.as_secs(), value_parser = clap::value_parser!(u64).range(5..=3600))]
    watch_silence_seconds: u64,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    receiver: ReceiverArgs,
    /// Hand Clusters over to Fleet, as the FleetAddonConfig says; requires the ClusterRole chandler-system-fleet
    #[arg(long)]
    fleet: bool,
    #[command(flatten)]
    tunnel: TunnelFlags,
    #[command(flatten)]
    traces: TraceArgs,
    /// Log level, or a list such as `info,chandler_tool=debug`; can be changed at run time with `chandler log-level`
    #[arg(long, default_value = "info")]
    log_level: String,
    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Flags that describe the platform.
#[derive(Debug, Args)]
pub struct PlatformArgs {
    /// Namespace whose Extensions are available to all namespaces
    #[arg(
        long = "platform-namespace",
        id = "platform_namespace",
        value_name = "PLATFORM_NAMESPACE",
        default_value = "chandler-system"
    )]
    pub namespace: String,
    /// Version of the platform, which Extensions with `lifecycle: Platform` must support
    #[arg(long = "platform-version", id = "platform_version", value_name = "VERSION", value_parser = version)]
    pub version: Option<Version>,
    /// ConfigMap that contains the version of the platform, instead of --platform-version
    #[arg(
        long = "platform-version-from",
        id = "platform_version_from",
        value_name = "NAMESPACE/CONFIGMAP:KEY",
        conflicts_with = "platform_version"
    )]
    pub version_from: Option<ConfigMapKey>,
}

/// Raises the soft limit of open files to the hard limit: each workload cluster needs two or three connections.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = ?limit.current, "cannot raise the limit of open files; large fleets need more");
    }
}

pub async fn run(arguments: ManagerArgs) -> Result<()> {
    let ManagerArgs {
        connection,
        namespace,
        watch_filter,
        tool,
        templates,
        tool_flags,
        store,
        store_limit,
        tenants,
        addresses,
        metrics_address,
        concurrency,
        concurrency_per_cluster,
        concurrency_waiting_clusters,
        quotas,
        poll_seconds,
        source_min_interval_seconds,
        health,
        platform,
        verify_policy,
        parameters_seconds,
        no_leader_election,
        leader_election_namespace,
        drain_seconds,
        watch_silence_seconds,
        lease,
        hooks,
        receiver,
        fleet,
        tunnel,
        traces,
        log_level,
        log_format,
    } = arguments;
    let watch_filter = watch_filter.filter(|value| !value.is_empty());
    let tools = programs::package_tools(tool)?;
    let templates = programs::template_service(templates, &tools)?;
    let log_level = logging::start(&log_level, log_format)?;
    raise_open_files_limit();
    let tracing = traces.start()?;
    let (uninstall_timeout, hooks) = (hooks.uninstall_timeout(), hooks.options(&leader_election_namespace)?);
    let receiver = receiver.options(&leader_election_namespace)?;
    let (tunnel, proxies) = tunnel.options(&leader_election_namespace)?;
    let AddressPolicies { sources, clusters: addresses } = addresses.policies(proxies.hub.as_ref());
    let (lease_times, requests) = (lease.times()?, RequestCounter::default());
    let (quotas, per_namespace) = quotas.quotas();
    let watch_silence = Duration::from_secs(watch_silence_seconds);
    let connect = connection.for_manager(&requests, watch_silence).await?;
    let election = (!no_leader_election).then(|| Election {
        namespace: leader_election_namespace,
        name: lease_name(namespace.as_deref(), watch_filter.as_deref()),
        identity: identity(),
        times: lease_times,
        connect: connect.clone(),
    });
    let options = Options {
        namespace,
        watch_filter,
        tools,
        templates,
        tool_options: tool_flags.options(traces.tool_environment())?,
        tool_log_level: log_level.tool(),
        store: store.clone(),
        sources: source_options(sources, store_limit, &tenants),
        require_login_hosts: tenants.require_login_hosts,
        default_workload_account: tenants.default_workload_service_account,
        ignore_tenancies: tenants.ignore_tenancies,
        address: metrics_address,
        requests: requests.clone(),
        drain_timeout: Duration::from_secs(drain_seconds),
        watch_silence,
        election,
        hooks,
        uninstall_timeout,
        receiver,
        fleet,
        tunnel,
        proxies,
        addresses,
        health,
        poll_interval: Duration::from_secs(poll_seconds),
        source_min_interval: Duration::from_secs(source_min_interval_seconds),
        platform_namespace: platform.namespace,
        platform_version: platform.version,
        platform_version_from: platform.version_from,
        verify_policy,
        parameters_interval: Duration::from_secs(parameters_seconds),
        limits: limits(concurrency, concurrency_per_cluster, concurrency_waiting_clusters, per_namespace),
        quotas,
    };
    control::serve(control::socket_path(&store), log_level);
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let result = chandler_controller::run(connect.client()?, options, stop).await;
    traces::shutdown(tracing).await;
    Ok(result?)
}

fn limits(
    overall: usize,
    per_cluster: usize,
    waiting_clusters: usize,
    per_namespace: Option<usize>,
) -> Limits {
    Limits {
        per_cluster: per_cluster.max(1),
        overall: overall.max(1),
        per_namespace,
        waiting_clusters: waiting_clusters.max(1),
    }
}

fn source_options(addresses: AddressPolicy, store_limit_mib: u64, tenants: &TenantFlags) -> SourceOptions {
    SourceOptions {
        addresses,
        retention: Retention { bytes: store_limit_mib.saturating_mul(1 << 20), ..Retention::default() },
        quotas: tenants.quotas(store_limit_mib),
        ..SourceOptions::default()
    }
}

fn version(text: &str) -> Result<Version> {
    parse_version(text).context("not a version such as 2.4.1")
}

/// Returns the name of the Lease. Managers that reconcile different objects have different Leases.
fn lease_name(namespace: Option<&str>, watch_filter: Option<&str>) -> String {
    [Some(LEASE), namespace, watch_filter].into_iter().flatten().collect::<Vec<_>>().join("-").to_lowercase()
}

/// Returns an identity that is unique across restarts, so that a restarted manager does not mistake the Lease of the
/// previous process for its own.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}_{}_{started}", host.trim(), std::process::id())
}

pub async fn stop_on_signal(stop: CancellationToken) {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
    stop.cancel();
}
