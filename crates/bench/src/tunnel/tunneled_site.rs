//! A hub, a link, and a site behind it with an agent and a target, each in its own network namespace.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use chandler_sandbox::{
    packet_link::Conditions,
    process::{Child, GRACE_PERIOD},
};
use chandler_tunnel::{HubNames, TunnelId, TunnelKeys};
use jiff::Timestamp;

use super::{
    agent_process,
    figures::AgentSize,
    hub_process::{BenchTunnel, HubFiles},
    network::{HUB, Network},
    target::Target,
    traffic::{Client, Way},
};
use crate::{numbers::rounded, usage::Processes};

/// In a namespace of their own, all ports are free.
const PROXY_PORT: u16 = 8132;
const PUBLIC_PORT: u16 = 8443;
const START_LIMIT: Duration = Duration::from_mins(1);
/// How long the tunnel has to work before it is broken again, so that the agent's backoff is reset.
const STABLE: Duration = Duration::from_secs(12);

pub struct TunneledSite {
    pub target: Target,
    /// A client that reaches the target through the link alone.
    pub direct: Client,
    /// A client that reaches the target through the hub, the link and the agent.
    pub tunnel: Client,
    hub: Child,
    agent: Child,
    pub network: Network,
}

impl TunneledSite {
    /// Starts everything and waits until the target answers both ways.
    pub async fn start(dir: &Path, conditions: Conditions, agent: &Path) -> Result<Self> {
        let network = Network::create(conditions)?;
        let target = Target::start(&network.site).await?;
        let (proxy, public): (SocketAddr, SocketAddr) = ((HUB, PROXY_PORT).into(), (HUB, PUBLIC_PORT).into());
        let keys = TunnelKeys::generate(&HubNames::new(&[public.to_string()], "bench"), Timestamp::now())?;
        let tunnel = BenchTunnel {
            id: TunnelId::random()?,
            cluster: "site".to_owned(),
            endpoint: target.address.to_string(),
        };
        let files = HubFiles::write(&dir.join("hub"), &keys, std::slice::from_ref(&tunnel), proxy, public)?;
        let hub = files.start(Some(network.hub.name()))?;
        let config =
            agent_process::config(&keys, tunnel.key(), public, target.address, dir.join("agent/state"))?;
        let agent = agent_process::start(agent, &config, &dir.join("agent"), &network.site)?;
        let client = |way| Client { namespace: network.hub.name().to_owned(), way };
        let direct = client(Way::Direct(target.address));
        let authorization = tunnel.authorization(&keys);
        let through_hub = client(Way::Tunnel { proxy, authority: tunnel.endpoint, authorization });
        let site = Self { target, direct, tunnel: through_hub, hub, agent, network };
        site.direct.wait_until_answers(START_LIMIT).await.context("without the tunnel")?;
        let answered = site.tunnel.wait_until_answers(START_LIMIT).await;
        site.check()?;
        answered.context("through the tunnel")?;
        Ok(site)
    }

    /// Returns an error with the end of the log if a process has exited.
    fn check(&self) -> Result<()> {
        self.hub.check()?;
        Ok(self.agent.check()?)
    }

    /// Waits until the tunnel has worked for a while.
    pub async fn wait_until_connected(&self) -> Result<()> {
        let until = Instant::now() + STABLE;
        while Instant::now() < until {
            self.tunnel.wait_until_answers(START_LIMIT).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.check()
    }

    /// Returns the memory of the agent and the size of its binary.
    pub fn agent_size(&self, binary: &Path) -> Result<AgentSize> {
        self.check()?;
        let bytes = fs::metadata(binary).with_context(|| format!("reading {}", binary.display()))?.len();
        let processes = Processes::default();
        processes.add(self.agent.pid());
        let resident_mib = rounded(processes.resident_roots());
        ensure!(resident_mib > 0.0, "the memory of the agent cannot be read");
        Ok(AgentSize {
            resident_mib,
            peak_mib: rounded(processes.high_water_roots()),
            binary_mb: rounded(f64::from(u32::try_from(bytes)?) / 1e6),
        })
    }

    pub async fn stop(self) {
        self.agent.stop(GRACE_PERIOD).await;
        self.hub.kill().await;
    }
}
