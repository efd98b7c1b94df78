//! `chandler-sandbox bench`: measures the resource usage of the controllers.

mod tenants;

use std::{net::SocketAddr, path::PathBuf, pin::Pin, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use chandler_bench::{
    GitopsOptions, GitopsSize, Options, OtherController, PlacementOptions, PlacementSize, Size,
    TunnelHubOptions, TunnelOptions, TunnelSize,
};
use clap::{Args, Subcommand};

use self::tenants::TenantsArgs;
use crate::programs::{ProgramArgs, ProgramPaths};

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure add-ons on many clusters: install, upgrade, new version, restart, idle, failing, unreachable
    Fleet(FleetArgs),
    /// Measure placements on many clusters that are up to date: label changes, churn, restart, idle, lost connections
    ///
    /// The management cluster and the manager are real. One real workload cluster gets all releases; its answers are
    /// replayed for all others.
    Placement(PlacementArgs),
    /// Measure GitOps: a push that changes an add-on on many clusters, Sources of one repository, a large repository
    ///
    /// The Git server is real, and so are all clusters. The change by a push is compared with the same change of the
    /// ExtensionInstance.
    Gitops(GitopsArgs),
    /// Measure the tunnel to clusters behind NAT: throughput, latency, reconnects, memory, many agents
    ///
    /// Needs root and `/dev/net/tun`: the hub and the agent run in network namespaces. They are real; the link between them
    /// has the rate and the delay that are set. Another link, with a round trip of 100 ms, also loses 5 % of the packets in
    /// each direction.
    Tunnel(TunnelArgs),
    /// Measure how much a tenant who attacks slows another one down
    ///
    /// Two tenants have a namespace and a real workload cluster each. Each of them installs add-ons without attacks, and while the
    /// other one runs attacks of all kinds: hostile charts, templates, repositories, packages, API servers, floods of releases,
    /// dependencies, and connections.
    Tenants(TenantsArgs),
    /// Run a hub for `bench tunnel`
    #[command(hide = true)]
    TunnelHub(TunnelHubArgs),
    /// Compare results of `bench fleet`: how the CPU time of a release grows with the number of clusters
    Compare(CompareArgs),
    /// Draw results of `bench fleet` or of `bench placement` over the number of clusters, as SVG
    Plot(PlotArgs),
}

#[derive(Debug, Args)]
pub struct FleetArgs {
    /// Number of workload clusters
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clusters: u32,
    /// Number of add-ons, each installed on every cluster
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    releases: u32,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Command line of another controller for HelmChartProxy to measure with the same work; KUBECONFIG is set in its
    /// environment, and `{kubeconfig}` and `{dir}` in the command are replaced
    #[arg(long)]
    controller: Option<String>,
    /// File with the CRDs of HelmChartProxy and HelmReleaseProxy of the other controller [default: those of Chandler]
    #[arg(long, requires = "controller")]
    controller_crds: Option<PathBuf>,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Let Chandler watch the objects of releases
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    health: bool,
    /// Duration of the phase without changes
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Duration of the phase with failing add-ons
    #[arg(long, default_value_t = 60)]
    failing_seconds: u64,
    /// Number of failing add-ons
    #[arg(long, default_value_t = 1)]
    failing_addons: u32,
    /// Empty folder for logs and audit logs [default: a temporary folder]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl FleetArgs {
    fn options(self) -> Result<Options> {
        let Self {
            clusters,
            releases,
            json,
            controller,
            controller_crds,
            programs,
            health,
            idle_seconds,
            failing_seconds,
            failing_addons,
            dir,
        } = self;
        let ProgramPaths { chandler, tool } = programs.find()?;
        let size = Size {
            clusters,
            addons: releases,
            failing_addons,
            idle: Duration::from_secs(idle_seconds),
            failing: Duration::from_secs(failing_seconds),
        };
        let other = controller.map(|command| OtherController { command, crds: controller_crds });
        Ok(Options { size, chandler, tool, health, other, json, dir })
    }
}

#[derive(Debug, Args)]
pub struct PlacementArgs {
    /// Number of Clusters; goals are shown for at most 1000
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..))]
    clusters: u32,
    /// Number of HelmChartProxies, each of which selects every Cluster
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    placements: u32,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Number of label changes to measure
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// Duration of the phase in which labels change all the time
    #[arg(long, default_value_t = 30)]
    churn_seconds: u64,
    /// Duration of the phase without changes; goals are shown for 60
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Measure a restart and the phase without changes without health, too, and show the ratio
    #[arg(long)]
    compare_health: bool,
    /// Measure them with drift of all objects reported, too, and show the ratio; comparing all objects takes several minutes
    #[arg(long)]
    compare_drift: bool,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Empty folder for logs and audit logs [default: a temporary folder]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl PlacementArgs {
    fn options(self) -> Result<PlacementOptions> {
        let Self {
            clusters,
            placements,
            json,
            changes,
            churn_seconds,
            idle_seconds,
            compare_health,
            compare_drift,
            programs,
            dir,
        } = self;
        let ProgramPaths { chandler, tool } = programs.find()?;
        let size = PlacementSize {
            clusters,
            placements,
            changes,
            churn: Duration::from_secs(churn_seconds),
            idle: Duration::from_secs(idle_seconds),
            compare_health,
            compare_drift,
        };
        Ok(PlacementOptions { size, chandler, tool, json, dir })
    }
}

#[derive(Debug, Args)]
pub struct GitopsArgs {
    /// Number of workload clusters; the goal of the push is shown for at least 40
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    clusters: u32,
    /// Number of pushes and of changes by apply to measure; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Number of Sources of one repository
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    sources: u32,
    /// Poll interval of these Sources
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    interval_seconds: u64,
    /// Number of intervals for which their polls are counted
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    intervals: u32,
    /// Number of files of the large repository, 4 KiB each; the goal of its memory is shown for at most 10000
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    files: u32,
    /// Size of the history of the large repository in megabytes
    #[arg(long, default_value_t = 500)]
    history_mb: u32,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Empty folder for repositories, logs and audit logs [default: a temporary folder]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl GitopsArgs {
    fn options(self) -> Result<GitopsOptions> {
        let Self {
            clusters,
            rounds,
            sources,
            interval_seconds,
            intervals,
            files,
            history_mb,
            json,
            programs,
            dir,
        } = self;
        let ProgramPaths { chandler, tool } = programs.find()?;
        let interval = Duration::from_secs(interval_seconds);
        let size = GitopsSize { clusters, rounds, sources, interval, intervals, files, history_mb };
        Ok(GitopsOptions { size, chandler, tool, json, dir })
    }
}

#[derive(Debug, Args)]
pub struct TunnelArgs {
    /// Rate of the link in each direction, in megabits per second; goals are shown for 200
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    megabits: u32,
    /// Round trip of the link; goals are shown for 50
    #[arg(long, default_value_t = 50)]
    round_trip_milliseconds: u64,
    /// Number of parallel connections to the target
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    connections: u32,
    /// For how long each rate is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often each rate is measured; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Number of messages whose round trip is measured
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// Number of agents at one hub; goals are shown for at least 1000
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    agents: u32,
    /// Number of connections that each of these agents keeps
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    connections_per_agent: u32,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Path of the `chandler-agent` binary [default: chandler-agent in the folder of this program]
    #[arg(long, env = "CHANDLER_AGENT_BIN", hide_env_values = true)]
    agent: Option<PathBuf>,
    /// Empty folder for logs and the files of agents [default: a temporary folder]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl TunnelArgs {
    fn options(self) -> Result<TunnelOptions> {
        let Self {
            megabits,
            round_trip_milliseconds,
            connections,
            seconds,
            rounds,
            messages,
            agents,
            connections_per_agent,
            json,
            agent,
            dir,
        } = self;
        let size = TunnelSize {
            megabits_per_second: megabits,
            round_trip: Duration::from_millis(round_trip_milliseconds),
            connections,
            duration: Duration::from_secs(seconds),
            rounds,
            messages,
            agents,
            connections_per_agent,
        };
        Ok(TunnelOptions { size, agent: find_agent(agent)?, json, dir })
    }
}

/// Returns the given binary of the agent, or the one in the folder of this program.
fn find_agent(path: Option<PathBuf>) -> Result<PathBuf> {
    let path = match path {
        Some(path) => path,
        None => std::env::current_exe()
            .context("finding the path of this program")?
            .with_file_name("chandler-agent"),
    };
    ensure!(
        path.is_file(),
        "there is no agent at {}: run `cargo xtask bench tunnel`, which builds it, or set its path with --agent",
        path.display()
    );
    path.canonicalize().with_context(|| format!("resolving {}", path.display()))
}

#[derive(Debug, Args)]
pub struct TunnelHubArgs {
    /// Folder with the keys and the tunnels
    #[arg(long)]
    dir: PathBuf,
    /// Listen address of the proxy
    #[arg(long)]
    proxy: SocketAddr,
    /// Listen address for agents
    #[arg(long)]
    public: SocketAddr,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Results of `bench fleet --json`, one for each number of clusters
    #[arg(required = true, num_args = 2..)]
    results: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PlotArgs {
    /// Results of `bench fleet --json` or of `bench placement --json`, one for each number of clusters
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Write the drawing to this file
    #[arg(long)]
    svg: PathBuf,
}

pub async fn run(command: BenchCommand) -> Result<()> {
    let bench: Pin<Box<dyn Future<Output = Result<()>>>> = match command {
        BenchCommand::Fleet(arguments) => Box::pin(chandler_bench::fleet(arguments.options()?)),
        BenchCommand::Placement(arguments) => Box::pin(chandler_bench::placement(arguments.options()?)),
        BenchCommand::Gitops(arguments) => Box::pin(chandler_bench::gitops(arguments.options()?)),
        BenchCommand::Tunnel(arguments) => Box::pin(chandler_bench::tunnel(arguments.options()?)),
        BenchCommand::Tenants(arguments) => Box::pin(chandler_bench::tenants(arguments.options()?)),
        BenchCommand::TunnelHub(TunnelHubArgs { dir, proxy, public }) => {
            Box::pin(chandler_bench::serve_tunnel_hub(TunnelHubOptions { dir, proxy, public }))
        }
        BenchCommand::Plot(PlotArgs { results, svg }) => {
            return chandler_bench::plot_results(&results, &svg);
        }
        BenchCommand::Compare(CompareArgs { results }) => return chandler_bench::compare_fleets(&results),
    };
    tokio::select! {
        done = bench => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}
