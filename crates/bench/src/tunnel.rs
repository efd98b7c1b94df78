//! Measures the tunnel to clusters behind NAT: what it costs on a link with a rate and a delay, and on one that loses packets, how
//! soon it is back after faults, and how many agents a hub can serve.

mod agent_process;
mod figures;
mod fleet;
mod hub_process;
mod network;
mod target;
mod traffic;
mod tunneled_site;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use chandler_sandbox::{packet_link::Conditions, progress};

pub use self::hub_process::{TunnelHubOptions, serve_tunnel_hub};
use self::{
    figures::{Comparison, Figures, Latency, LossyLink},
    traffic::{Transfer, round_trip},
    tunneled_site::TunneledSite,
};
use crate::numbers::{rounded, seconds};

/// A reset connection is noticed at once; a silent one by the next pings.
const RECONNECT_LIMIT: Duration = Duration::from_mins(2);
/// The link that loses packets: its round trip, and the probability that a packet is lost in each direction.
const LOSSY_ROUND_TRIP: Duration = Duration::from_millis(100);
const LOSS: f64 = 0.05;

/// The size of the tunnel benchmark.
#[derive(Clone, Copy, Debug)]
pub struct TunnelSize {
    /// The rate of the link in each direction.
    pub megabits_per_second: u32,
    /// The round trip of the link.
    pub round_trip: Duration,
    /// The number of parallel connections to the target.
    pub connections: u32,
    /// For how long a rate is measured, and how often.
    pub duration: Duration,
    pub rounds: u32,
    /// The number of messages whose round trip is measured.
    pub messages: u32,
    /// The number of agents that connect to one hub, and how many connections each of them keeps.
    pub agents: u32,
    pub connections_per_agent: u32,
}

/// The configuration of the tunnel benchmark.
#[derive(Clone, Debug)]
pub struct TunnelOptions {
    pub size: TunnelSize,
    /// The path of the `chandler-agent` binary.
    pub agent: PathBuf,
    /// The file to which the results are written.
    pub json: Option<PathBuf>,
    /// The folder for logs and the agents' files. `None` means a temporary folder.
    pub dir: Option<PathBuf>,
}

/// Measures the tunnel and prints the results as a table.
pub async fn tunnel(options: TunnelOptions) -> Result<()> {
    let TunnelOptions { size, agent, json, dir } = options;
    let progress = progress::display();
    let temporary = tempfile::tempdir().context("creating a temporary folder")?;
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());
    let mut figures = Figures {
        megabits_per_second: size.megabits_per_second,
        round_trip_ms: rounded(size.round_trip.as_secs_f64() * 1e3),
        connections: size.connections,
        agents: size.agents,
        connections_per_agent: size.connections_per_agent,
        ..Figures::default()
    };

    progress.note("starting a hub and an agent in network namespaces");
    let conditions = Conditions::new(size.megabits_per_second, size.round_trip);
    let site = TunneledSite::start(&dir.join("site"), conditions, &agent).await?;
    figures.congestion_control = site.network.congestion_control().await?;
    progress.note("measuring throughput and latency");
    measure_traffic(&site, size, &mut figures).await?;
    progress.note("breaking the connections of the agent");
    measure_reconnects(&site, &mut figures).await?;
    figures.agent = site.agent_size(&agent)?;
    site.stop().await;

    progress.note("measuring throughput and latency on a link that loses packets");
    let conditions = Conditions::new(size.megabits_per_second, LOSSY_ROUND_TRIP).with_loss(LOSS);
    let site = TunneledSite::start(&dir.join("lossy-site"), conditions, &agent).await?;
    figures.lossy_link = measure_lossy_link(&site, size).await?;
    site.stop().await;

    progress.note(&format!("connecting {} agents to a hub", size.agents));
    fleet::measure(&dir.join("fleet"), size, &mut figures, progress.as_ref()).await?;
    print!("{}", figures::table(&figures));
    json.map_or(Ok(()), |path| figures::write(&path, &figures))
}

async fn measure_traffic(tunneled: &TunneledSite, size: TunnelSize, figures: &mut Figures) -> Result<()> {
    figures.latency = latency(tunneled, size.messages).await?;
    figures.download = compare(tunneled, Transfer::Download, size.connections, size).await?;
    figures.upload = compare(tunneled, Transfer::Upload, size.connections, size).await?;
    figures.single_download = compare(tunneled, Transfer::Download, 1, size).await?;
    Ok(())
}

async fn measure_lossy_link(tunneled: &TunneledSite, size: TunnelSize) -> Result<LossyLink> {
    Ok(LossyLink {
        round_trip_ms: rounded(LOSSY_ROUND_TRIP.as_secs_f64() * 1e3),
        loss_percent: rounded(LOSS * 100.0),
        latency: latency(tunneled, size.messages).await?,
        download: compare(tunneled, Transfer::Download, size.connections, size).await?,
        single_download: compare(tunneled, Transfer::Download, 1, size).await?,
    })
}

/// Measures both ways in turn, so that what else this machine does affects both.
async fn compare(
    tunneled: &TunneledSite,
    transfer: Transfer,
    connections: u32,
    size: TunnelSize,
) -> Result<Comparison> {
    let (mut direct, mut tunnel) = (Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        for (client, rates) in [(&tunneled.direct, &mut direct), (&tunneled.tunnel, &mut tunnel)] {
            rates.push(client.throughput(transfer, connections, size.duration, &tunneled.target).await?);
        }
    }
    Ok(Comparison::of(&direct, &tunnel))
}

async fn latency(site: &TunneledSite, messages: u32) -> Result<Latency> {
    let mut direct_stream = site.direct.open(target::ECHO).await?;
    let mut tunnel_stream = site.tunnel.open(target::ECHO).await?;
    let (mut direct, mut tunnel) = (Vec::new(), Vec::new());
    for _ in 0..messages {
        direct.push(round_trip(&mut direct_stream).await?);
        tunnel.push(round_trip(&mut tunnel_stream).await?);
    }
    Ok(Latency::of(&direct, &tunnel))
}

async fn measure_reconnects(site: &TunneledSite, figures: &mut Figures) -> Result<()> {
    site.network.link.reset_connections();
    let reset = site.tunnel.wait_until_answers(RECONNECT_LIMIT).await.context("after a reset")?;
    figures.reconnect_after_reset_s = seconds(reset);
    site.wait_until_connected().await?;
    site.network.link.forget_connections();
    let black_hole = site.tunnel.wait_until_answers(RECONNECT_LIMIT).await.context("after a black hole")?;
    figures.reconnect_after_black_hole_s = seconds(black_hole);
    Ok(())
}
