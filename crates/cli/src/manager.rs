//! `chandler manager`

use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use chandler_cli_support::programs;
use chandler_controller::{ConfigMapKey, Election, Options};
use chandler_core::{leadership::LeaseTimes, resolution::parse_version, schedule::Limits};
use chandler_source::{AddressPolicy, AddressRange, Retention, SourceOptions};
use chandler_telemetry::RequestCounter;
use clap::Args;
use semver::Version;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::Connection,
    control,
    hooks::HookArgs,
    logging::{self, LogFormat},
    traces::{self, TraceArgs},
};

/// The Lease that says which process acts.
pub const LEASE: &str = "chandler-leader";
/// Where packages are kept unless said otherwise.
pub const STORE: &str = "/var/cache/chandler";

#[derive(Debug, Args)]
pub struct ManagerArgs {
    #[command(flatten)]
    connection: Connection,
    /// Only look after this namespace [default: all]
    #[arg(long)]
    namespace: Option<String>,
    /// Only look after objects whose label `cluster.x-k8s.io/watch-filter` has this value [default: all]
    #[arg(long, value_name = "VALUE")]
    watch_filter: Option<String>,
    /// The package tool's binary [default: chandler-helm beside this program]
    #[arg(long, env = "CHANDLER_TOOL")]
    tool: Option<PathBuf>,
    /// Folder in which downloaded packages are kept
    #[arg(long, env = "CHANDLER_STORE", default_value = STORE)]
    store: PathBuf,
    /// How much of downloaded packages is kept, in MiB; what was not used for longest goes first
    #[arg(long, default_value_t = Retention::default().bytes >> 20)]
    store_limit: u64,
    /// Address, or range such as 127.0.0.0/8, at which repositories and registries may be although it is loopback,
    /// link-local or refused; may be given several times
    #[arg(long, value_name = "RANGE")]
    allow_source_address: Vec<AddressRange>,
    /// Address or range at which no repository or registry may be; may be given several times
    #[arg(long, value_name = "RANGE")]
    refuse_source_address: Vec<AddressRange>,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, default_value = "127.0.0.1:8080")]
    metrics_address: SocketAddr,
    /// Operations that may be active at once; those that only wait do not count
    #[arg(long, default_value_t = Limits::default().overall)]
    concurrency: usize,
    /// Operations that may be active at once on one workload cluster
    #[arg(long, default_value_t = Limits::default().per_cluster)]
    concurrency_per_cluster: usize,
    /// How often releases without a version look for a newer one, in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    poll_seconds: u64,
    #[command(flatten)]
    platform: PlatformArgs,
    /// ConfigMap with what has to be signed, and by whom, whoever asks for it [default: nothing has to be]
    #[arg(long, value_name = "NAMESPACE/CONFIGMAP:KEY")]
    verify_policy: Option<ConfigMapKey>,
    /// How often what `parametersFrom` names is read again, the platform's version and --verify-policy, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    parameters_seconds: u64,
    /// Act without asking whether another process does: only for one that is alone
    #[arg(long)]
    no_leader_election: bool,
    /// Namespace of the Lease that says which process acts
    #[arg(long, env = "POD_NAMESPACE", default_value = "chandler-system")]
    leader_election_namespace: String,
    /// How long a process that stopped answering keeps others from acting, in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    lease_seconds: u64,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    traces: TraceArgs,
    /// Log level, which `chandler log-level` changes later, or a list such as `info,chandler_tool=debug`
    #[arg(long, default_value = "info")]
    log_level: String,
    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// What the platform is.
#[derive(Debug, Args)]
pub struct PlatformArgs {
    /// Namespace whose Extensions are everyone's
    #[arg(
        long = "platform-namespace",
        id = "platform_namespace",
        value_name = "PLATFORM_NAMESPACE",
        default_value = "chandler-system"
    )]
    pub namespace: String,
    /// Version of the platform, which Extensions with `lifecycle: Platform` are held against
    #[arg(long = "platform-version", id = "platform_version", value_name = "VERSION", value_parser = version)]
    pub version: Option<Version>,
    /// ConfigMap in which the platform keeps its version, instead of --platform-version
    #[arg(
        long = "platform-version-from",
        id = "platform_version_from",
        value_name = "NAMESPACE/CONFIGMAP:KEY",
        conflicts_with = "platform_version"
    )]
    pub version_from: Option<ConfigMapKey>,
}

pub async fn run(arguments: ManagerArgs) -> Result<()> {
    let ManagerArgs {
        connection,
        namespace,
        watch_filter,
        tool,
        store,
        store_limit,
        allow_source_address,
        refuse_source_address,
        metrics_address,
        concurrency,
        concurrency_per_cluster,
        poll_seconds,
        platform:
            PlatformArgs {
                namespace: platform_namespace,
                version: platform_version,
                version_from: platform_version_from,
            },
        verify_policy,
        parameters_seconds,
        no_leader_election,
        leader_election_namespace,
        lease_seconds,
        hooks,
        traces,
        log_level,
        log_format,
    } = arguments;
    let watch_filter = watch_filter.filter(|value| !value.is_empty());
    let tool = programs::package_tool(tool)?;
    let log_level = logging::start(&log_level, log_format)?;
    let tracing = traces.start()?;
    let hooks = hooks.options(&leader_election_namespace);
    let requests = RequestCounter::default();
    let connect = connection.counted(&requests).await?;
    let election = (!no_leader_election).then(|| Election {
        namespace: leader_election_namespace,
        name: lease_name(namespace.as_deref(), watch_filter.as_deref()),
        identity: identity(),
        times: LeaseTimes { duration: Duration::from_secs(lease_seconds) },
        connect: connect.clone(),
    });
    let options = Options {
        namespace,
        watch_filter,
        tool,
        tool_arguments: Vec::new(),
        tool_environment: traces.tool_environment(),
        tool_log_level: log_level.tool(),
        store: store.clone(),
        sources: SourceOptions {
            addresses: AddressPolicy { allowed: allow_source_address, refused: refuse_source_address },
            retention: Retention { bytes: store_limit.saturating_mul(1 << 20), ..Retention::default() },
            ..SourceOptions::default()
        },
        address: metrics_address,
        requests: requests.clone(),
        election,
        hooks,
        poll_interval: Duration::from_secs(poll_seconds),
        platform_namespace,
        platform_version,
        platform_version_from,
        verify_policy,
        parameters_interval: Duration::from_secs(parameters_seconds),
        limits: Limits { per_cluster: concurrency_per_cluster.max(1), overall: concurrency.max(1) },
    };
    let client = connect.client()?;
    let stop = CancellationToken::new();
    control::serve(control::socket(&store), log_level);
    tokio::spawn(stop_on_signal(stop.clone()));
    let ended = Box::pin(chandler_controller::run(client, options, stop)).await;
    traces::end(tracing).await;
    Ok(ended?)
}

fn version(text: &str) -> Result<Version> {
    parse_version(text).context("it is not a version such as 2.4.1")
}

/// Managers that look after different objects do not wait for each other.
fn lease_name(namespace: Option<&str>, watch_filter: Option<&str>) -> String {
    [Some(LEASE), namespace, watch_filter].into_iter().flatten().collect::<Vec<_>>().join("-").to_lowercase()
}

/// Tells this process from all that ever were: a restart must not take itself for its predecessor.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}_{}_{started}", host.trim(), std::process::id())
}

async fn stop_on_signal(stop: CancellationToken) {
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
