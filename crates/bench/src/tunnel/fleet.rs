//! Many agents at one hub: the hub's memory, and how soon they are back after it was killed. The agents are tasks of this
//! process, the hub is a process of its own.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use chandler_agent::{Agent, Settings, Status};
use chandler_sandbox::{plane::free_port, process::Child, progress::ProgressReporter};
use chandler_tunnel::{
    AgentConfig, HubNames, TunnelId, TunnelIdentity, TunnelKey, TunnelKeys,
    authority::{certificate_request, generate_key_pem},
};
use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use secrecy::ExposeSecret as _;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use super::{
    TunnelSize, agent_process,
    figures::Figures,
    hub_process::{BenchTunnel, EPOCH, HubFiles},
};
use crate::usage::Processes;

const START_LIMIT: Duration = Duration::from_secs(20);
const CONNECT_LIMIT: Duration = Duration::from_mins(5);
/// How long the hub is idle before its memory is read. Longer than a ping takes, and than a failed attempt counts as recent.
const IDLE: Duration = Duration::from_secs(30);
/// Files of this process that do not depend on the number of agents.
const OTHER_FILES: u64 = 500;

/// Measures the fleet.
pub async fn measure(
    dir: &Path,
    size: TunnelSize,
    figures: &mut Figures,
    progress: &dyn ProgressReporter,
) -> Result<()> {
    raise_file_limit(size)?;
    let localhost = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (proxy, public) = (localhost(free_port()?), localhost(free_port()?));
    let keys = TunnelKeys::generate(&HubNames::new(&[public.to_string()], "bench"), Timestamp::now())?;
    let tunnels = (0..size.agents)
        .map(|number| {
            let endpoint = localhost(6443).to_string();
            Ok(BenchTunnel { id: TunnelId::random()?, cluster: format!("site-{number}"), endpoint })
        })
        .collect::<Result<Vec<_>>>()?;
    let files = HubFiles::write(&dir.join("hub"), &keys, &tunnels, proxy, public)?;
    let hub = start_hub(&files, public).await?;
    let empty = resident(&hub);
    let fleet = Fleet::start(dir, &keys, &tunnels, public, size)?;
    fleet.wait_until_connected(size.connections_per_agent).await?;
    sleep(IDLE).await;
    figures.set_hub_memory(empty, resident(&hub));

    progress.note("killing the hub and starting another");
    let killed = Instant::now();
    hub.kill().await;
    let hub = files.start(None)?;
    figures.set_agents_back(&fleet.wait_until_back(killed).await?);
    hub.kill().await;
    Ok(())
}

async fn start_hub(files: &HubFiles, public: SocketAddr) -> Result<Child> {
    let hub = files.start(None)?;
    ensure!(hub.accepts_connections(public.port(), START_LIMIT).await?, "the hub does not start");
    Ok(hub)
}

fn resident(hub: &Child) -> f64 {
    let processes = Processes::default();
    processes.add(hub.pid());
    processes.resident_roots()
}

/// Raises the limit of this process, which has all connections of all agents, and of the hub.
fn raise_file_limit(size: TunnelSize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raising the limit of open files")?;
    let needed = OTHER_FILES + u64::from(size.agents) * u64::from(size.connections_per_agent + 1);
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{} agents need {needed} open files: raise the hard limit (`ulimit -Hn`)",
        size.agents
    );
    Ok(())
}

/// Agents that run until this is dropped.
struct Fleet {
    statuses: Vec<watch::Receiver<Status>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
    _stop: DropGuard,
}

impl Fleet {
    /// Starts one agent per tunnel. They have certificates already, because a hub signs only a few per second.
    fn start(
        dir: &Path,
        keys: &TunnelKeys,
        tunnels: &[BenchTunnel],
        hub: SocketAddr,
        size: TunnelSize,
    ) -> Result<Self> {
        let stop = CancellationToken::new();
        let (mut statuses, mut tasks) = (Vec::new(), Vec::new());
        for tunnel in tunnels {
            let state_dir = dir.join("agents").join(&tunnel.cluster);
            write_state(&state_dir, keys, tunnel.key())?;
            // No stream is opened, so the target does not matter.
            let config = agent_process::config(keys, tunnel.key(), hub, hub, state_dir)?;
            let config = AgentConfig { connections: size.connections_per_agent, ..config };
            let agent = Agent::new(Settings::new(config)?)?;
            statuses.push(agent.status());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(agent.run(stop.clone()))));
        }
        Ok(Self { statuses, _tasks: tasks, _stop: stop.drop_guard() })
    }

    /// Waits until every agent has all of its connections.
    async fn wait_until_connected(&self, connections: u32) -> Result<()> {
        let connections = usize::try_from(connections)?;
        let all = async {
            for status in &self.statuses {
                status.clone().wait_for(|status| status.connections.len() >= connections).await?;
            }
            anyhow::Ok(())
        };
        timeout(CONNECT_LIMIT, all).await.context("not all agents have connected")?
    }

    /// Waits until every agent has a connection that is newer than `lost`. Returns how long each of them took.
    async fn wait_until_back(&self, lost: Instant) -> Result<Vec<Duration>> {
        let all = async {
            let mut times = Vec::new();
            for status in &self.statuses {
                times.push(back(status.clone(), lost).await?);
            }
            anyhow::Ok(times)
        };
        timeout(CONNECT_LIMIT, all).await.context("not all agents are back")?
    }
}

/// Returns when an agent had its first connection again.
async fn back(mut status: watch::Receiver<Status>, lost: Instant) -> Result<Duration> {
    let first = |status: &Status| {
        let times = status.connections.values().map(|connection| connection.since);
        times.filter(|since| *since > lost).min()
    };
    let status = status.wait_for(|status| first(status).is_some()).await?;
    Ok(first(&status).map(|since| since - lost).unwrap_or_default())
}

/// Writes what an agent has after it has joined.
fn write_state(dir: &Path, keys: &TunnelKeys, tunnel: TunnelKey) -> Result<()> {
    let TunnelKey { id, owner } = tunnel;
    let identity = TunnelIdentity { installation: keys.installation, tunnel: id, owner, epoch: EPOCH };
    let key = generate_key_pem()?;
    let certificate = keys.authority.sign_agent(&certificate_request(&key)?, identity, Timestamp::now())?;
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    fs::write(dir.join("key.pem"), key.expose_secret())?;
    Ok(fs::write(dir.join(format!("{}.crt", keys.installation)), certificate)?)
}
