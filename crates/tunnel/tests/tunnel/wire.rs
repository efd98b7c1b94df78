//! Requests between hub and agent, limits and keep-alive.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use chandler_tunnel::{CloseReason, HubEndpoint, OpenError, Settings, join_message::HubList};
use http::{Method, Request, Uri};
use secrecy::ExposeSecret as _;
use tokio::{
    io::{AsyncReadExt as _, duplex},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::harness::{Dial, Options, Tunnel, relay, run, within};

#[test]
fn a_stream_is_open_only_after_the_agent_has_dialed() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        tunnel.dial.send_replace(Dial::Refuse);
        let Err(OpenError::Refused { status, message }) = tunnel.hub.open(Duration::from_secs(4)).await
        else {
            panic!("the stream was opened");
        };
        assert_eq!(status, 502);
        assert!(message.contains("connection refused"), "{message}");

        tunnel.dial.send_replace(Dial::Hang);
        let started = Instant::now();
        let Err(OpenError::Refused { status, message }) = tunnel.hub.open(Duration::from_secs(4)).await
        else {
            panic!("the stream was opened");
        };
        assert_eq!((status, started.elapsed().as_millis() / 100), (502, 35));
        assert!(message.contains("in time"), "{message}");

        tunnel.dial.send_replace(Dial::Accept);
        let mut connected = tunnel.connect().await.unwrap();
        connected.ping_pong().await;
        connected.finish().await;
        assert_eq!(tunnel.hub.open_streams(), 0);
    });
}

#[test]
fn the_agent_stops_dialing_when_the_hub_gives_up() {
    run(async {
        let tunnel = Tunnel::start(Options::default()).await;
        tunnel.dial.send_replace(Dial::Hang);
        let limit = Duration::from_secs(1);
        assert_eq!(tunnel.hub.open(limit).await.unwrap_err(), OpenError::Timeout(limit));
        let stopped = async {
            while tunnel.agent.dialing.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(1), stopped).await.expect("the agent still dials");
        assert_eq!(tunnel.hub.open_streams(), 0);
    });
}

#[test]
fn streams_over_the_limit_are_refused_at_once() {
    run(async {
        let settings = Settings { max_streams: 3, ..Settings::tunnel() };
        let mut tunnel = Tunnel::start(Options { settings, ..Options::default() }).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(tunnel.connect().await.unwrap());
        }
        let started = Instant::now();
        assert_eq!(tunnel.connect().await.err(), Some(OpenError::TooManyStreams));
        assert_eq!(started.elapsed(), Duration::ZERO);
        // Requests beside streams have room.
        tunnel.hub.about("hub-1").await.unwrap();
        open.pop().unwrap().finish().await;
        let mut again = tunnel.connect().await.unwrap();
        again.ping_pong().await;
        for connected in &mut open {
            connected.ping_pong().await;
        }
    });
}

#[test]
fn about_is_bounded_and_printable() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let about = tunnel.hub.about("hub-1").await.unwrap();
        assert_eq!(about.node, "node-1 forged line");
        assert_eq!(about.version.len(), 253);
        assert_eq!(tunnel.replicas.recv().await.unwrap().as_deref(), Some("hub-1"));
    });
}

#[test]
fn a_new_list_of_hubs_reaches_the_agent() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let hub = HubEndpoint {
            address: "new.example:443".to_owned(),
            ca_bundle: "CA".repeat(20_000),
            token: "v1.secret".into(),
        };
        tunnel.hub.send_config(&HubList { hubs: vec![hub.clone()] }).await.unwrap();
        let received = tunnel.configured.recv().await.unwrap();
        assert_eq!(received.hubs[0].address, "new.example:443");
        assert_eq!(received.hubs[0].token.expose_secret(), "v1.secret");

        let refused = tunnel.hub.send_config(&HubList { hubs: Vec::new() }).await;
        assert_eq!(refused, Err(OpenError::Refused { status: 500, message: "the list is empty".to_owned() }));
        let hubs = vec![hub; 20];
        let refused = tunnel.hub.send_config(&HubList { hubs }).await;
        assert!(matches!(refused, Err(OpenError::Refused { status: 413, .. })), "{refused:?}");
    });
}

/// Serves another hub with the handler of a tunnel. Returns that tunnel, and the requests of the hub.
async fn raw_hub() -> (Tunnel, h2::client::SendRequest<Bytes>) {
    let (hub, agent) = duplex(4096);
    let tunnel_io = duplex(4096);
    // The handler and the pump of a tunnel, on a connection of our own.
    let tunnel = Tunnel::start_on(Options::default(), tunnel_io.0, tunnel_io.1).await;
    let (handler, pump) = (tunnel.agent.clone(), tunnel.agent_pump.clone());
    tokio::spawn(async move {
        let shutdown = CancellationToken::new();
        chandler_tunnel::serve_agent(agent, handler, pump, &Settings::tunnel(), &shutdown).await
    });
    let (requests, connection) = h2::client::handshake(hub).await.unwrap();
    tokio::spawn(connection);
    (tunnel, requests)
}

#[test]
fn a_list_of_hubs_that_does_not_end_is_given_up() {
    run(async {
        let (mut tunnel, requests) = raw_hub().await;
        let uri = Uri::from_static("https://tunnel/config");
        let request = Request::builder().method(Method::PUT).uri(uri).body(()).unwrap();
        let mut requests = requests.ready().await.unwrap();
        let started = Instant::now();
        let (response, mut send) = requests.send_request(request, false).unwrap();
        send.send_data(Bytes::from_static(b"{\"hubs\": ["), false).unwrap();
        assert_eq!(within(response).await.unwrap().status(), 408);
        assert_eq!(started.elapsed().as_secs(), 5);
        assert!(tunnel.configured.try_recv().is_err());
    });
}

#[test]
fn an_agent_serves_nothing_else() {
    run(async {
        let (tunnel, requests) = raw_hub().await;
        let authority = |text: &str| Uri::builder().authority(text).build().unwrap();
        for (method, uri) in [
            (Method::CONNECT, authority("10.0.0.1:22")),
            (Method::CONNECT, authority("apiserver:6443")),
            (Method::GET, Uri::from_static("https://tunnel/")),
            (Method::POST, Uri::from_static("https://tunnel/about")),
            (Method::GET, Uri::from_static("https://tunnel/config")),
            (Method::GET, Uri::from_static("https://tunnel/apiserver")),
        ] {
            let request = Request::builder().method(method.clone()).uri(uri.clone()).body(()).unwrap();
            let mut requests = requests.clone().ready().await.unwrap();
            let (response, mut send) = requests.send_request(request, false).unwrap();
            send.send_data(Bytes::new(), true).unwrap();
            assert_eq!(within(response).await.unwrap().status(), 404, "{method} {uri}");
        }
        assert!(tunnel.dialed.is_empty(), "the agent has dialed its target");
    });
}

#[test]
fn a_black_hole_is_found_by_both_sides_within_25_seconds() {
    run(async {
        let ((hub, left), (right, agent)) = (duplex(4096), duplex(4096));
        let cut = CancellationToken::new();
        relay(left, right, cut.clone());
        let mut tunnel = Tunnel::start_on(Options::default(), hub, agent).await;
        let mut connected = tunnel.connect().await.unwrap();
        connected.ping_pong().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(tunnel.hub.is_usable(), "an idle connection stays open");

        let started = Instant::now();
        cut.cancel();
        assert_eq!(within(tunnel.hub.closed()).await, CloseReason::PingTimeout);
        assert!(started.elapsed() < Duration::from_secs(26), "{:?}", started.elapsed());
        assert_eq!(within(&mut tunnel.serving).await.unwrap(), CloseReason::PingTimeout);
        assert!(started.elapsed() < Duration::from_secs(26), "{:?}", started.elapsed());
        assert!(!tunnel.hub.is_usable());
        assert_eq!(tunnel.hub.open(Duration::from_secs(4)).await.err(), Some(OpenError::Closing));
        // The streams end with the connection.
        assert!(within(connected.pumping).await.unwrap().is_err());
        let mut rest = Vec::new();
        within(connected.server.read_to_end(&mut rest)).await.unwrap();
        tunnel.wait_for_empty_budgets().await;
    });
}

#[test]
fn closing_a_connection_cuts_its_streams() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let mut connected = tunnel.connect().await.unwrap();
        connected.ping_pong().await;
        tunnel.hub.close();
        assert_eq!(within(tunnel.hub.closed()).await, CloseReason::ClosedHere);
        assert!(within(connected.pumping).await.unwrap().is_err());
        let mut rest = Vec::new();
        within(connected.client.read_to_end(&mut rest)).await.unwrap();
        within(connected.server.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty());
    });
}
