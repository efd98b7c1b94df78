//! A hub that forwards to another.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chandler_tunnel::{
    AgentConnection, Budget, CloseReason, OpenError, PeerConnection, PeerHandler, Pump, Settings, TunnelId,
    TunnelKey, TunnelOwner, TunnelStream, serve_peer,
};
use http::{Method, Request, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio_util::sync::CancellationToken;

use crate::harness::{Dial, OPEN_LIMIT, Options, Tunnel, run, within};

const EPOCH: u32 = 2;

/// A hub with a connection to the agent of one tunnel.
struct Hub {
    tunnel: TunnelKey,
    agent: AgentConnection,
}

impl PeerHandler for Hub {
    fn replica(&self) -> String {
        "hub-2".to_owned()
    }

    async fn open(&self, tunnel: TunnelKey, epoch: u32) -> Result<TunnelStream, OpenError> {
        if (tunnel, epoch) == (self.tunnel, EPOCH) {
            self.agent.open(Duration::from_secs(4)).await
        } else {
            Err(OpenError::Refused { status: 503, message: "no agent is connected".to_owned() })
        }
    }
}

/// Starts a hub with an agent, and serves a connection to it.
async fn start_peer(io: tokio::io::DuplexStream) -> (Tunnel, TunnelKey, Pump) {
    let tunnel = Tunnel::start(Options::default()).await;
    let key = TunnelKey { id: TunnelId::random().unwrap(), owner: TunnelOwner::of("fleet", "blue") };
    let hub = Arc::new(Hub { tunnel: key, agent: tunnel.hub.clone() });
    let pump = tunnel.hub_pump.clone();
    let serving = pump.clone();
    tokio::spawn(async move {
        let shutdown = CancellationToken::new();
        serve_peer(io, hub, serving, &Settings::peer(), &shutdown).await
    });
    (tunnel, key, pump)
}

#[test]
fn bytes_and_ends_pass_two_hubs() {
    run(async {
        let (near, far) = duplex(64 << 10);
        let (mut tunnel, key, peer_pump) = start_peer(far).await;
        let peer = PeerConnection::start(near, &Settings::peer()).await.unwrap();
        assert_eq!(peer.replica().await.unwrap(), "hub-2");

        let stream = peer.open(key, EPOCH, OPEN_LIMIT).await.unwrap();
        let mut server = tunnel.dialed.recv().await.unwrap();
        let (mut client, socket) = duplex(1000);
        let pump = Pump::new(Budget::new(1 << 20));
        let pumping = tokio::spawn({
            let pump = pump.clone();
            async move { pump.run(stream, socket, Bytes::from_static(b"early ")).await }
        });
        let sent = vec![5; 1 << 20];
        let mut at_server = Vec::new();
        let upload = async {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        };
        within(async { tokio::join!(upload, async { server.read_to_end(&mut at_server).await.unwrap() }) })
            .await;
        assert!(at_server == [&b"early "[..], &sent].concat());

        server.write_all(b"answer").await.unwrap();
        server.shutdown().await.unwrap();
        let mut at_client = Vec::new();
        within(client.read_to_end(&mut at_client)).await.unwrap();
        assert_eq!(at_client, b"answer");
        within(pumping).await.unwrap().unwrap();
        tunnel.wait_for_empty_budgets().await;
        assert_eq!((pump.budget().used(), peer_pump.traffic().to_stream()), (0, at_server.len() as u64));
    });
}

#[test]
fn answers_of_the_other_hub_and_of_the_agent_are_passed_on() {
    run(async {
        let (near, far) = duplex(4096);
        let (tunnel, key, _) = start_peer(far).await;
        let peer = PeerConnection::start(near, &Settings::peer()).await.unwrap();
        let owner = TunnelOwner::of("other", "blue");
        for (case, tunnel, epoch) in [
            ("another tunnel", TunnelKey { id: TunnelId::random().unwrap(), ..key }, EPOCH),
            ("another owner", TunnelKey { owner, ..key }, EPOCH),
            ("another epoch", key, 1),
        ] {
            let unknown = peer.open(tunnel, epoch, OPEN_LIMIT).await.unwrap_err();
            let expected = OpenError::Refused { status: 503, message: "no agent is connected".to_owned() };
            assert_eq!(unknown, expected, "{case}");
        }
        tunnel.dial.send_replace(Dial::Refuse);
        let refused = peer.open(key, EPOCH, OPEN_LIMIT).await.unwrap_err();
        assert!(matches!(refused, OpenError::Refused { status: 502, .. }), "{refused:?}");
        tunnel.hub.close();
        tunnel.hub.closed().await;
        let closed = peer.open(key, EPOCH, OPEN_LIMIT).await.unwrap_err();
        assert!(matches!(closed, OpenError::Refused { status: 503, .. }), "{closed:?}");
    });
}

#[test]
fn requests_that_were_not_forwarded_once_are_refused() {
    run(async {
        let (near, far) = duplex(4096);
        let (_tunnel, key, _) = start_peer(far).await;
        let (requests, connection) = h2::client::handshake(near).await.unwrap();
        tokio::spawn(connection);
        let authority = format!("{}.{}.{EPOCH}", key.id, key.owner);
        for (authority, hop) in [
            (authority.clone(), None),
            (authority, Some("2")),
            (key.id.to_string(), Some("1")),
            ("apiserver".to_owned(), Some("1")),
        ] {
            let uri = Uri::builder().authority(authority).build().unwrap();
            let mut request = Request::builder().method(Method::CONNECT).uri(uri);
            if let Some(hop) = hop {
                request = request.header("chandler-hop", hop);
            }
            let mut requests = requests.clone().ready().await.unwrap();
            let (response, mut send) = requests.send_request(request.body(()).unwrap(), false).unwrap();
            send.send_data(Bytes::new(), true).unwrap();
            assert_eq!(within(response).await.unwrap().status(), 404, "{hop:?}");
        }
    });
}

#[test]
fn a_drained_peer_connection_keeps_its_open_streams() {
    run(async {
        let (near, far) = duplex(4096);
        let (mut tunnel, key, _) = start_peer(far).await;
        let peer = PeerConnection::start(near, &Settings::peer()).await.unwrap();
        let stream = peer.open(key, EPOCH, OPEN_LIMIT).await.unwrap();
        let mut server = tunnel.dialed.recv().await.unwrap();
        let (mut client, socket) = duplex(1000);
        let pump = Pump::new(Budget::new(1 << 20));
        let pumping = tokio::spawn(async move { pump.run(stream, socket, Bytes::new()).await });
        let draining = tokio::spawn({
            let peer = peer.clone();
            async move { peer.shutdown(Duration::from_mins(1)).await }
        });
        while peer.is_usable() {
            tokio::task::yield_now().await;
        }
        assert_eq!(peer.open(key, EPOCH, OPEN_LIMIT).await.err(), Some(OpenError::Closing));
        server.write_all(&[1; 5000]).await.unwrap();
        server.shutdown().await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        within(client.read_to_end(&mut received)).await.unwrap();
        assert_eq!(received.len(), 5000);
        within(pumping).await.unwrap().unwrap();
        assert_eq!(within(draining).await.unwrap(), CloseReason::Closed);
    });
}
