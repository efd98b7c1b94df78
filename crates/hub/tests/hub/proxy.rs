//! What clients of the proxy see.

use std::net::{Ipv4Addr, SocketAddr};

use chandler_hub::{HubOptions, TunnelEntry};
use chandler_tunnel::Settings;
use jiff::Timestamp;
use tokio::io::AsyncWriteExt as _;

use crate::{
    agent::{self, echo_server},
    client::{self, connect, connect_as, echo, expect, rest},
    world::{ENDPOINT, World, entry, options, within},
};

#[tokio::test]
async fn bytes_pass_in_both_directions_and_each_can_end_alone() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let hub = world.start(options()).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let target = echo_server("api:").await;
    let _agent = agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await;
    let records = hub.reports.agents(blue.id, 1).await;
    assert_eq!((records[0].node.as_str(), records[0].epoch), ("node-1", 1));

    let mut response = connect(hub.addresses.proxy, &world, &blue).await;
    assert_eq!(response.status, 200, "{}", response.head);
    expect(&mut response.stream, "api:").await;
    echo(&mut response.stream, "hello").await;
    assert_eq!(hub.metrics.streams(), 1);
    response.stream.write_all(b"end").await.unwrap();
    response.stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut response.stream).await, b"end", "the other direction continues after a half close");
}

#[tokio::test]
async fn two_clusters_with_the_same_endpoint_are_kept_apart() {
    let (blue, red) = (entry("blue"), entry("red"));
    let world = World::new(&[blue.clone(), red.clone()]);
    let hub = world.start(options()).await;
    let mut agents = Vec::new();
    for (tunnel, name) in [(&blue, "blue:"), (&red, "red:")] {
        let certificate = world.certificate(tunnel, Timestamp::now());
        let target = echo_server(name).await;
        agents.push(agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await);
        hub.reports.agents(tunnel.id, 1).await;
    }
    for (tunnel, name) in [(&blue, "blue:"), (&red, "red:")] {
        let mut response = connect(hub.addresses.proxy, &world, tunnel).await;
        expect(&mut response.stream, name).await;
    }
}

#[tokio::test]
async fn only_the_credentials_of_a_cluster_open_its_endpoint() {
    let (blue, red) = (entry("blue"), entry("red"));
    let world = World::new(&[blue.clone(), red.clone()]);
    let hub = world.start(options()).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let target = echo_server("api:").await;
    let _agent = agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await;
    hub.reports.agents(blue.id, 1).await;

    let (user, password) = world.credentials(&blue);
    let (_, of_red) = world.credentials(&red);
    let (_, of_next_epoch) = world.credentials(&TunnelEntry { epoch: 2, ..blue.clone() });
    let rows = [
        ("no credentials", ENDPOINT, None, 407),
        ("another cluster's password", ENDPOINT, Some((user.as_str(), &of_red)), 403),
        ("a password of another epoch", ENDPOINT, Some((user.as_str(), &of_next_epoch)), 403),
        ("an unknown cluster", ENDPOINT, Some(("fleet.green", &password)), 403),
        ("another address", "10.0.0.11:6443", Some((user.as_str(), &password)), 403),
        ("another port", "10.0.0.10:22", Some((user.as_str(), &password)), 403),
        ("right", ENDPOINT, Some((user.as_str(), &password)), 200),
    ];
    for (case, authority, credentials, status) in rows {
        let response = connect_as(hub.addresses.proxy, authority, credentials).await;
        assert_eq!(response.status, status, "{case}: {}", response.head);
    }
    let get =
        client::send(hub.addresses.proxy, "GET http://10.0.0.10:6443/ HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(get.status, 405, "{}", get.head);
}

#[tokio::test]
async fn without_an_agent_the_answer_names_the_last_time_one_was_seen() {
    let seen = Timestamp::from_second(1_800_000_000).unwrap();
    let blue = TunnelEntry { last_seen: Some(seen), ..entry("blue") };
    let unborn = TunnelEntry { endpoint: None, ..entry("unborn") };
    let world = World::new(&[blue.clone(), unborn.clone()]);
    let hub = world.start(options()).await;
    let response = connect(hub.addresses.proxy, &world, &blue).await;
    assert_eq!(response.status, 503);
    assert!(
        response.head.contains("no agent is connected; last seen 2027-01-15T08:00:00Z"),
        "{}",
        response.head
    );
    let response = connect(hub.addresses.proxy, &world, &unborn).await;
    assert_eq!(response.status, 503, "{}", response.head);
    world.unlist();
    let response = connect(hub.addresses.proxy, &world, &blue).await;
    assert_eq!(response.status, 503, "{}", response.head);
    assert!(response.head.contains("not listed"), "{}", response.head);
}

#[tokio::test]
async fn an_agent_that_cannot_reach_its_api_server_is_a_bad_gateway() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let hub = world.start(options()).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let public = hub.addresses.public;
    // Nothing listens there.
    let closed = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let _broken = agent::connect(public, world.ca_bundle(), &certificate, closed).await;
    hub.reports.agents(blue.id, 1).await;
    let response = connect(hub.addresses.proxy, &world, &blue).await;
    assert_eq!(response.status, 502, "{}", response.head);
    assert!(response.head.contains("cannot reach the API server"), "{}", response.head);

    let target = echo_server("api:").await;
    let _working = agent::connect(public, world.ca_bundle(), &certificate, target).await;
    hub.reports.agents(blue.id, 2).await;
    for attempt in 0..4 {
        let response = connect(hub.addresses.proxy, &world, &blue).await;
        assert_eq!(response.status, 200, "attempt {attempt}: another agent serves, {}", response.head);
    }
}

#[tokio::test]
async fn over_the_limit_of_streams_the_answer_comes_at_once() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let settings = Settings { max_streams: 2, ..Settings::tunnel() };
    let hub = world.start(HubOptions { settings, ..options() }).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let target = echo_server("api:").await;
    let _agent = agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await;
    hub.reports.agents(blue.id, 1).await;

    let mut open = Vec::new();
    for _ in 0..2 {
        let mut response = connect(hub.addresses.proxy, &world, &blue).await;
        expect(&mut response.stream, "api:").await;
        open.push(response.stream);
    }
    let refused = connect(hub.addresses.proxy, &world, &blue).await;
    assert_eq!(refused.status, 503, "{}", refused.head);
    assert!(refused.head.contains("limit"), "{}", refused.head);
    echo(&mut open[0], "the open streams are not disturbed").await;
    drop(open.pop());
    within(async {
        while connect(hub.addresses.proxy, &world, &blue).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
