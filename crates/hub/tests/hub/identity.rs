//! Which agents are accepted, and how they are cut.

use std::time::Duration;

use chandler_hub::TunnelEntry;
use chandler_tunnel::{
    authority::CertificateAndKey,
    tls::{Protocol, agent_client_config},
};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tokio::io::AsyncReadExt as _;

use crate::{
    agent::{self, dial, echo_server},
    client::{connect, echo, expect, rest},
    world::{HOUR, TestHub, World, entry, hub_address, options, within},
};

const DAY: Duration = Duration::from_hours(24);

/// Returns whether the hub keeps a connection with this certificate.
async fn is_accepted(
    hub: &TestHub,
    world: &World,
    certificate: &CertificateAndKey,
    tunnel: &TunnelEntry,
) -> bool {
    let target = echo_server("api:").await;
    let agent = agent::connect(hub.addresses.public, world.ca_bundle(), certificate, target).await;
    tokio::select! {
        _ = hub.reports.agents(tunnel.id, 1) => true,
        _ = agent.ended() => false,
    }
}

#[tokio::test]
async fn only_a_certificate_of_the_current_epoch_is_accepted() {
    let blue = TunnelEntry { epoch: 2, ..entry("blue") };
    let world = World::new(std::slice::from_ref(&blue));
    let now = Timestamp::now();
    let foreign = World::new(std::slice::from_ref(&blue));
    let hub = world.start(options()).await;
    let rows = [
        ("expired", world.certificate(&blue, now - 91 * DAY), false),
        ("an earlier epoch", world.certificate(&TunnelEntry { epoch: 1, ..blue.clone() }, now), false),
        ("a later epoch", world.certificate(&TunnelEntry { epoch: 3, ..blue.clone() }, now), false),
        ("an unknown tunnel", world.certificate(&entry("blue"), now), false),
        ("another namespace", world.certificate(&in_namespace("other", &blue), now), false),
        ("another Cluster", world.certificate(&of_cluster("red", &blue), now), false),
        ("another installation", foreign.certificate(&blue, now), false),
        ("a hub's own certificate", world.keys.keys.hub.clone(), false),
        ("valid", world.certificate(&blue, now), true),
    ];
    for (case, certificate, accepted) in rows {
        assert_eq!(is_accepted(&hub, &world, &certificate, &blue).await, accepted, "{case}");
    }
}

fn in_namespace(namespace: &str, entry: &TunnelEntry) -> TunnelEntry {
    TunnelEntry { namespace: namespace.to_owned(), ..entry.clone() }
}

fn of_cluster(cluster: &str, entry: &TunnelEntry) -> TunnelEntry {
    TunnelEntry { cluster: cluster.to_owned(), ..entry.clone() }
}

#[tokio::test]
async fn a_duplicate_id_never_gets_the_agents_of_the_first() {
    let now = Timestamp::now();
    let blue = TunnelEntry { created: Some(now - DAY), ..entry("blue") };
    let thief = TunnelEntry { created: Some(now), ..in_namespace("thief", &blue) };
    let world = World::new(&[blue.clone(), thief.clone()]);
    let hub = world.start(options()).await;
    let certificate = world.certificate(&blue, now);
    let target = echo_server("api:").await;
    let agent = agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await;
    hub.reports.agents(blue.id, 1).await;
    let mut of_blue = connect(hub.addresses.proxy, &world, &blue).await.stream;
    expect(&mut of_blue, "api:").await;
    assert_eq!(connect(hub.addresses.proxy, &world, &thief).await.status, 403, "the id belongs to the first");

    world.list(std::slice::from_ref(&thief));
    assert!(rest(&mut of_blue).await.is_empty(), "the first is deleted");
    agent.ended().await;
    hub.reports.agents(blue.id, 0).await;
    assert!(!is_accepted(&hub, &world, &certificate, &blue).await, "its agents connect again");
    let response = connect(hub.addresses.proxy, &world, &thief).await;
    assert_eq!(response.status, 503, "{}", response.head);
    assert!(is_accepted(&hub, &world, &world.certificate(&thief, now), &thief).await);
}

#[tokio::test]
async fn a_stolen_certificate_serves_only_its_own_tunnel() {
    let (blue, red) = (entry("blue"), entry("red"));
    let world = World::new(&[blue.clone(), red.clone()]);
    let hub = world.start(options()).await;
    let stolen = world.certificate(&red, Timestamp::now());
    let target = echo_server("thief:").await;
    let _thief = agent::connect(hub.addresses.public, world.ca_bundle(), &stolen, target).await;
    hub.reports.agents(red.id, 1).await;
    assert_eq!(connect(hub.addresses.proxy, &world, &blue).await.status, 503);
    assert_eq!(connect(hub.addresses.proxy, &world, &red).await.status, 200);

    // The same authority signs hubs and agents: an agent must not pass as a hub.
    let config = agent_client_config(world.ca_bundle(), Some(&stolen), Protocol::Peer);
    assert!(config.is_ok());
    let mut stream =
        dial(hub.addresses.peer, world.ca_bundle(), Some(&stolen), Protocol::Peer).await.unwrap();
    let mut answer = Vec::new();
    let _ = within(stream.read_to_end(&mut answer)).await;
    assert!(answer.is_empty(), "the port for replicas says nothing to an agent");
}

#[tokio::test]
async fn a_revocation_cuts_agents_and_streams_at_once() {
    for removed in [false, true] {
        let (blue, red) = (entry("blue"), entry("red"));
        let world = World::new(&[blue.clone(), red.clone()]);
        let hub = world.start(options()).await;
        let target = echo_server("api:").await;
        let mut agents = Vec::new();
        for tunnel in [&blue, &red] {
            let certificate = world.certificate(tunnel, Timestamp::now());
            agents.push(agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await);
            hub.reports.agents(tunnel.id, 1).await;
        }
        let mut of_blue = connect(hub.addresses.proxy, &world, &blue).await.stream;
        let mut of_red = connect(hub.addresses.proxy, &world, &red).await.stream;
        expect(&mut of_blue, "api:").await;
        expect(&mut of_red, "api:").await;

        world.unlist();
        echo(&mut of_blue, "nothing is concluded from a missing list").await;

        let revoked = TunnelEntry { epoch: 2, ..blue.clone() };
        let entries = if removed { vec![red.clone()] } else { vec![revoked, red.clone()] };
        world.list(&entries);
        assert!(rest(&mut of_blue).await.is_empty(), "removed: {removed}");
        agents.remove(0).ended().await;
        hub.reports.agents(blue.id, 0).await;
        echo(&mut of_red, "another tunnel is not disturbed").await;
        assert_eq!(
            connect(hub.addresses.proxy, &world, &blue).await.status,
            403,
            "the password is revoked too"
        );
    }
}

#[tokio::test]
async fn agents_have_to_retry_until_the_tunnels_are_listed() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    world.unlist();
    let hub = world.start(options()).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let refused = dial(hub.addresses.public, world.ca_bundle(), Some(&certificate), Protocol::Tunnel).await;
    assert!(refused.is_err());
    world.list(std::slice::from_ref(&blue));
    assert!(is_accepted(&hub, &world, &certificate, &blue).await);
}

#[tokio::test]
async fn the_public_port_serves_nothing_else() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let hub = world.start(options()).await;
    let certificate = world.certificate(&blue, Timestamp::now());
    let (public, ca_bundle) = (hub.addresses.public, world.ca_bundle());
    let peer = dial(public, ca_bundle, Some(&certificate), Protocol::Peer).await;
    assert!(peer.is_err(), "an unknown protocol ends the handshake");
    let mut anonymous = dial(public, ca_bundle, None, Protocol::Tunnel).await.unwrap();
    let mut answer = Vec::new();
    let _ = within(anonymous.read_to_end(&mut answer)).await;
    assert!(answer.is_empty(), "a tunnel needs a certificate");
    assert_eq!(hub.metrics.agents(), 0);
}

#[tokio::test]
async fn agents_get_the_list_of_hubs_and_its_changes() {
    let plain = entry("blue");
    let world = World::new(std::slice::from_ref(&plain));
    let with_hubs = |addresses: &[&str]| TunnelEntry {
        hubs: addresses.iter().map(|address| hub_address(address, world.ca_bundle())).collect(),
        ..plain.clone()
    };
    world.list(&[with_hubs(&["one:443"])]);
    let hub = world.start(options()).await;
    let certificate = world.certificate(&plain, Timestamp::now());
    let target = echo_server("api:").await;
    let agent = agent::connect(hub.addresses.public, world.ca_bundle(), &certificate, target).await;
    let mut configured = agent.handler.configured.subscribe();
    for addresses in [&["one:443"][..], &["one:443", "two:443"]] {
        world.list(&[with_hubs(addresses)]);
        let received = configured.wait_for(|list| {
            let hubs = list.iter().flat_map(|list| &list.hubs).map(|hub| hub.address.as_str());
            hubs.eq(addresses.iter().copied())
        });
        let list = within(received).await.unwrap().clone().unwrap();
        let token = list.hubs[0].token.expose_secret();
        let expires = chandler_tunnel::JoinToken::read_unverified(token).unwrap().expires;
        assert!(expires > Timestamp::now() + 23 * HOUR);
    }
}
