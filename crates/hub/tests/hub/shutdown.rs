//! How a hub stops.

use std::time::Duration;

use chandler_hub::HubOptions;
use jiff::Timestamp;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    agent::{self, echo_server},
    client::{connect, echo, expect, rest},
    world::{World, entry, options, within},
};

#[tokio::test]
async fn open_streams_continue_and_agents_leave() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let hub = world.start(options()).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let target = echo_server("api:").await;
    let agent = agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await;
    hub.reports.agents(blue.id, 1).await;
    let mut stream = connect(hub.addresses.proxy, &world, &blue).await.stream;
    expect(&mut stream, "api:").await;

    let (addresses, reports) = (hub.addresses, hub.reports);
    let stopping = tokio::spawn(hub.hub.shutdown());
    within(agent.handler.draining.cancelled()).await;
    echo(&mut stream, "still open").await;
    assert!(!stopping.is_finished());
    stream.write_all(b"end").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, b"end");
    within(stopping).await.unwrap();
    reports.agents(blue.id, 0).await;
    for address in [addresses.proxy, addresses.public, addresses.peer] {
        assert!(TcpStream::connect(address).await.is_err(), "{address} is closed");
    }
}

#[tokio::test]
async fn streams_that_do_not_end_are_cut() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let hub = world.start(HubOptions { drain_timeout: Duration::from_millis(300), ..options() }).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let target = echo_server("api:").await;
    let agent = agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await;
    hub.reports.agents(blue.id, 1).await;
    let mut stream = connect(hub.addresses.proxy, &world, &blue).await.stream;
    expect(&mut stream, "api:").await;
    within(hub.hub.shutdown()).await;
    assert!(rest(&mut stream).await.is_empty());
    agent.ended().await;
}
