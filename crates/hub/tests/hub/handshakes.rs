//! Who gets in when many connect at the same time.

use std::net::SocketAddr;

use chandler_hub::{HandshakeLimits, HubOptions};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpSocket, TcpStream},
};

use crate::{
    agent::{self, echo_server},
    world::{World, entry, options, within},
};

/// Agents of one cluster.
const AGENTS: usize = 30;

/// Opens connections from the address `127.0.0.<host>` that send nothing.
async fn silent_connections(hub: SocketAddr, host: u8, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
        streams.push(within(socket.connect(hub)).await.unwrap());
    }
    streams
}

/// All agents come from one address, as behind NAT, and have far fewer slots than connections.
#[tokio::test]
async fn silent_connections_of_other_addresses_keep_no_agent_out() {
    let tunnels = ["blue", "red", "green"].map(entry);
    let world = World::new(&tunnels);
    let handshakes = HandshakeLimits { total: 32, per_source: 8, ..HandshakeLimits::default() };
    let hub = world.start(HubOptions { handshakes, ..options() }).await;
    let (public, ca_bundle) = (hub.addresses.public, world.ca_bundle());
    let mut silent = Vec::new();
    for host in 2..5 {
        silent.extend(silent_connections(public, host, 40).await);
    }

    let target = echo_server("api:").await;
    let certificates = tunnels.each_ref().map(|tunnel| world.certificate(tunnel, Timestamp::now()));
    let connecting = certificates.iter().flat_map(|certificate| {
        (0..AGENTS).map(move |_| agent::connect(public, ca_bundle, certificate, target))
    });
    let _agents = within(join_all(connecting)).await;
    for tunnel in &tunnels {
        hub.reports.agents(tunnel.id, AGENTS).await;
    }
    let metrics = hub.metrics.text();
    let dropped = metrics
        .lines()
        .find_map(|line| line.strip_prefix("chandler_hub_handshakes_total{result=\"unavailable\"} "));
    assert_ne!(dropped.unwrap(), "0", "silent connections had all slots");
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_given_up() {
    let world = World::new(&[entry("blue")]);
    let hub = world.start(options()).await;
    let mut silent = silent_connections(hub.addresses.public, 2, 1).await;
    let read = within(silent[0].read(&mut [0; 1])).await;
    assert_eq!(read.unwrap_or_default(), 0, "the hub closes the connection");
}
