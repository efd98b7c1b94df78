//! Several replicas.

use std::sync::Arc;

use chandler_hub::{Directory, TunnelEntry};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    agent::{self, echo_server},
    client::{Response, connect, echo, expect, rest},
    world::{TestHub, World, entry, options, options_with_peer, within},
};

/// Connects through a replica as soon as it knows its peers. Without an agent, the answer stays 503.
async fn connect_when_ready(hub: &TestHub, world: &World, tunnel: &TunnelEntry) -> Response {
    within(async {
        loop {
            let response = connect(hub.addresses.proxy, world, tunnel).await;
            if response.status != 503 {
                return response;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_replica_without_the_agent_asks_its_peer() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let first = world.start(options()).await;
    let second = world.start(options_with_peer(first.addresses.peer)).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let target = echo_server("api:").await;
    let _agent = agent::connect(first.addresses.public, world.ca_bundle(), &certificate, target).await;
    first.reports.agents(blue.id, 1).await;

    let mut response = connect_when_ready(&second, &world, &blue).await;
    assert_eq!(response.status, 200, "{}", response.head);
    expect(&mut response.stream, "api:").await;
    echo(&mut response.stream, "forwarded").await;

    world.list(&[TunnelEntry { epoch: 2, ..blue.clone() }]);
    assert!(rest(&mut response.stream).await.is_empty(), "a revocation cuts forwarded streams");
}

#[tokio::test]
async fn a_peer_does_not_forward_further() {
    let (blue, red) = (entry("blue"), entry("red"));
    let world = World::new(&[blue.clone(), red.clone()]);
    let first = world.start(options()).await;
    let second = world.start(options_with_peer(first.addresses.peer)).await;
    let third = world.start(options_with_peer(second.addresses.peer)).await;
    let target = echo_server("api:").await;
    let mut agents = Vec::new();
    for (hub, tunnel) in [(&first, &blue), (&second, &red)] {
        let certificate = world.certificate(tunnel, Timestamp::now());
        agents.push(agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await);
        hub.reports.agents(tunnel.id, 1).await;
    }
    // Both connections between replicas are established.
    assert_eq!(connect_when_ready(&second, &world, &blue).await.status, 200);
    assert_eq!(connect_when_ready(&third, &world, &red).await.status, 200);
    let response = connect(third.addresses.proxy, &world, &blue).await;
    assert_eq!(response.status, 503, "{}", response.head);
    assert!(response.head.contains("no agent is connected"), "{}", response.head);
}

/// The watch of a replica may be late: agents that another replica knows to be revoked are not used through it.
#[tokio::test]
async fn a_replica_that_is_late_does_not_lend_revoked_agents() {
    let (blue, red) = (entry("blue"), entry("red"));
    let world = World::new(&[blue.clone(), red.clone()]);
    let entries = [blue.clone(), red.clone()];
    let (_late, directory) = watch::channel(Arc::new(Directory::of(entries)));
    let first = world.start_with(options(), directory).await;
    let second = world.start(options_with_peer(first.addresses.peer)).await;
    let target = echo_server("api:").await;
    let mut agents = Vec::new();
    for tunnel in [&blue, &red] {
        let certificate = world.certificate(tunnel, Timestamp::now());
        agents.push(agent::connect(first.addresses.public, world.ca_bundle(), &certificate, target).await);
        first.reports.agents(tunnel.id, 1).await;
    }
    assert_eq!(connect_when_ready(&second, &world, &blue).await.status, 200);

    let revoked = TunnelEntry { epoch: 2, ..blue.clone() };
    let other = TunnelEntry { namespace: "other".to_owned(), ..red.clone() };
    world.list(&[revoked.clone(), other.clone()]);
    for tunnel in [&revoked, &other] {
        let response = connect(second.addresses.proxy, &world, tunnel).await;
        assert_eq!(response.status, 503, "{}", response.head);
        assert!(response.head.contains("no agent is connected"), "{}", response.head);
    }
}
