//! Runs the agent against a small hub on a loopback port.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails the test")]

mod binary;
mod test_hub;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use chandler_agent::{Agent, Settings, join::join};
use chandler_sandbox::connect_proxy::ConnectProxy;
use chandler_tunnel::{
    AgentConfig, AgentConnection, Budget, CertificateFacts, HubEndpoint, Pump, TunnelId,
    authority::generate_key_pem, join_message::HubList,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    net::TcpListener,
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use crate::test_hub::{Join, LIMIT, TestHub};

/// An agent that runs in this process until it is dropped.
struct RunningAgent {
    stop: DropGuard,
    task: AbortOnDropHandle<()>,
}

impl RunningAgent {
    fn start(config: AgentConfig) -> Self {
        Self::start_with(Settings::new(config).unwrap())
    }

    fn start_with(settings: Settings) -> Self {
        let agent = Agent::new(settings).unwrap();
        let stop = CancellationToken::new();
        let task = AbortOnDropHandle::new(tokio::spawn(agent.run(stop.clone())));
        Self { stop: stop.drop_guard(), task }
    }

    /// Stops the agent and waits until it has closed its connections.
    async fn stop(self) {
        drop(self.stop);
        timeout(LIMIT, self.task).await.expect("the agent does not stop").unwrap();
    }
}

/// A target that returns what it receives, and the configuration of an agent that serves it.
struct Site {
    folder: TempDir,
    target: String,
    _task: AbortOnDropHandle<()>,
}

impl Site {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let echo = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    if tokio::io::copy(&mut from, &mut to).await.is_ok() {
                        let _ = to.shutdown().await;
                    }
                });
            }
        };
        let task = AbortOnDropHandle::new(tokio::spawn(echo));
        Self { folder: tempfile::tempdir().unwrap(), target, _task: task }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Returns a configuration with one connection per hub.
    fn config(&self, tunnel: TunnelId, hubs: Vec<HubEndpoint>) -> AgentConfig {
        AgentConfig {
            installation: chandler_tunnel::Installation::random().unwrap(),
            tunnel,
            hubs,
            target: self.target.clone(),
            proxy: None,
            state_dir: self.state(),
            connections: 1,
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Opens a connection to the target through the agent.
async fn open(connection: &AgentConnection) -> DuplexStream {
    let stream = connection.open(LIMIT).await.unwrap();
    let (here, there) = tokio::io::duplex(64 << 10);
    let pump = Pump::new(Budget::new(1 << 20));
    tokio::spawn(async move { pump.run(stream, there, Bytes::new()).await });
    here
}

async fn exchange(stream: &mut DuplexStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut returned = vec![0; text.len()];
    timeout(LIMIT, stream.read_exact(&mut returned)).await.expect("nothing returned").unwrap();
    assert_eq!(returned, text.as_bytes());
}

/// Sends and closes one direction, and expects the same bytes and the end of the other direction.
async fn echo(connection: &AgentConnection) {
    let mut stream = open(connection).await;
    exchange(&mut stream, "hello").await;
    stream.write_all(b"bye").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    timeout(LIMIT, stream.read_to_string(&mut rest)).await.expect("no end").unwrap();
    assert_eq!(rest, "bye");
}

#[tokio::test]
async fn an_agent_joins_once_and_serves_its_target() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let hub = TestHub::start(tunnel).await;
    let config = site.config(tunnel, vec![hub.endpoint(24)]);
    let agent = RunningAgent::start(AgentConfig { connections: 2, ..config.clone() });
    for _ in 0..2 {
        let connected = hub.connected().await;
        assert_eq!(connected.identity.tunnel, tunnel);
        assert_eq!(connected.about.version, env!("CARGO_PKG_VERSION"));
        assert!(!connected.about.node.is_empty());
        echo(&connected.connection).await;
    }
    assert_eq!(hub.joins(), [Join::Token], "one join for both connections");
    assert_eq!(mode(&site.state()), 0o700);
    for name in ["key.pem".to_owned(), format!("{}.crt", hub.installation())] {
        assert_eq!(mode(&site.state().join(&name)), 0o600, "{name}");
    }
    agent.stop().await;

    let _agent = RunningAgent::start(config);
    echo(&hub.connected().await.connection).await;
    assert_eq!(hub.joins(), [Join::Token], "a restarted agent has a certificate");
}

#[tokio::test]
async fn a_certificate_is_renewed_after_a_third_of_its_life() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let hub = TestHub::start_with_old_certificates(tunnel, 40).await;
    let _agent = RunningAgent::start(site.config(tunnel, vec![hub.endpoint(24)]));
    echo(&hub.connected().await.connection).await;
    let path = site.state().join(format!("{}.crt", hub.installation()));
    let is_new = |pem: String| {
        let facts = CertificateFacts::from_pem(&pem).unwrap();
        facts.not_before > jiff::Timestamp::now() - Duration::from_hours(48)
    };
    let renewed = async {
        while !fs::read_to_string(&path).is_ok_and(is_new) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LIMIT, renewed).await.expect("the certificate is not renewed");
    assert_eq!(hub.joins(), [Join::Token, Join::Renewal]);
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn a_new_list_of_hubs_is_stored_and_followed() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let (first, second) = (TestHub::start(tunnel).await, TestHub::start(tunnel).await);
    let config = site.config(tunnel, vec![first.endpoint(2)]);
    let agent = RunningAgent::start(config.clone());
    let old = first.connected().await.connection;
    let stored = site.state().join("hubs.json");

    old.send_config(&HubList { hubs: vec![first.endpoint(1)] }).await.unwrap();
    assert!(!stored.exists(), "an older list is ignored");
    let empty = old.send_config(&HubList { hubs: Vec::new() }).await.unwrap_err().to_string();
    assert!(empty.contains("no hub"), "{empty}");
    let broken = HubEndpoint { ca_bundle: "garbage".to_owned(), ..second.endpoint(3) };
    assert!(old.send_config(&HubList { hubs: vec![broken] }).await.is_err());
    let away = old.send_config(&HubList { hubs: vec![second.endpoint(3)] }).await.unwrap_err().to_string();
    assert!(away.contains("that sends it"), "{away}");
    let years = HubList { hubs: vec![first.endpoint(24 * 365)] };
    let years = old.send_config(&years).await.unwrap_err().to_string();
    assert!(years.contains("valid until"), "{years}");
    assert!(!stored.exists(), "lists that are refused are not stored");

    // A move is prepared, then the other installation removes the first from its list.
    old.send_config(&HubList { hubs: vec![first.endpoint(3), second.endpoint(3)] }).await.unwrap();
    assert_eq!(mode(&stored), 0o600);
    let new = second.connected().await.connection;
    echo(&new).await;
    echo(&old).await;
    new.send_config(&HubList { hubs: vec![second.endpoint(4)] }).await.unwrap();
    echo(&new).await;
    timeout(LIMIT, old.closed()).await.expect("the agent stays at a hub that is no longer in the list");
    assert_eq!((first.joins(), second.joins()), (vec![Join::Token], vec![Join::Token]));
    for hub in [&first, &second] {
        assert!(site.state().join(format!("{}.crt", hub.installation())).exists());
    }
    agent.stop().await;

    let _agent = RunningAgent::start(config);
    echo(&second.connected().await.connection).await;
}

#[tokio::test]
async fn old_connections_stay_until_there_is_a_new_one() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let (first, second) = (TestHub::start(tunnel).await, TestHub::start(tunnel).await);
    let _agent = RunningAgent::start(site.config(tunnel, vec![first.endpoint(1)]));
    let old = first.connected().await.connection;
    let unreachable = HubEndpoint { address: "127.0.0.1:1".to_owned(), ..first.endpoint(2) };
    old.send_config(&HubList { hubs: vec![unreachable.clone()] }).await.unwrap();
    echo(&old).await;
    // The connection is still there to fix the mistake.
    let unreachable = HubEndpoint { token: first.endpoint(3).token, ..unreachable };
    old.send_config(&HubList { hubs: vec![unreachable, second.endpoint(3)] }).await.unwrap();
    let new = second.connected().await.connection;
    echo(&new).await;
    // The list names the installation of the first hub, which cannot be reached in another way.
    echo(&old).await;
    new.send_config(&HubList { hubs: vec![second.endpoint(4)] }).await.unwrap();
    timeout(LIMIT, old.closed()).await.expect("the agent stays at a hub that is no longer in the list");
}

#[tokio::test]
async fn the_hubs_of_the_file_are_tried_again() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let (hub, foreign) = (TestHub::start(tunnel).await, TestHub::start(tunnel).await);
    let config = site.config(tunnel, vec![hub.endpoint(1)]);
    let agent = RunningAgent::start(config.clone());
    let old = hub.connected().await.connection;
    // A hub that was stolen has sent its agents to an address that is gone now, and to another installation. It has also
    // listed the address of the real hub, with an authority that this one does not have.
    let gone = HubEndpoint { address: "127.0.0.1:1".to_owned(), ..hub.endpoint(2) };
    let hidden = HubEndpoint { address: hub.address.to_string(), ..foreign.endpoint(2) };
    old.send_config(&HubList { hubs: vec![gone, hidden, foreign.endpoint(2)] }).await.unwrap();
    echo(&foreign.connected().await.connection).await;
    agent.stop().await;

    let mut settings = Settings::new(config).unwrap();
    assert_eq!(settings.config.hubs[0].address, "127.0.0.1:1", "the stored list is newer");
    settings.fallback_after = Duration::from_millis(100);
    let _agent = RunningAgent::start_with(settings);
    let elsewhere = foreign.connected().await.connection;
    let new = hub.connected().await.connection;
    echo(&new).await;
    new.send_config(&HubList { hubs: vec![hub.endpoint(3)] }).await.unwrap();
    timeout(LIMIT, elsewhere.closed()).await.expect("the agent stays at a hub that is no longer in the list");
    echo(&new).await;
}

#[tokio::test]
async fn a_revoked_agent_joins_again_only_with_a_new_token() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let hub = TestHub::start(tunnel).await;
    let agent = RunningAgent::start(site.config(tunnel, vec![hub.endpoint(24)]));
    let old = hub.connected().await;
    assert_eq!(old.identity.epoch, 1);
    let revoked = hub.endpoint(24);
    hub.revoke();
    let error = join(&revoked, &generate_key_pem().unwrap(), None, None).await.unwrap_err().to_string();
    assert!(error.contains("revoked") && error.contains("agent.yaml"), "{error}");

    old.connection.send_config(&HubList { hubs: vec![hub.endpoint(25)] }).await.unwrap();
    old.connection.close();
    let new = hub.connected().await;
    assert_eq!(new.identity.epoch, 2);
    echo(&new.connection).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_drained_connection_is_replaced_and_its_streams_continue() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let hub = TestHub::start(tunnel).await;
    let _agent = RunningAgent::start(site.config(tunnel, vec![hub.endpoint(24)]));
    let old = hub.connected().await.connection;
    let mut stream = open(&old).await;
    exchange(&mut stream, "before").await;
    let draining = tokio::spawn(async move { old.shutdown(LIMIT).await });
    let new = hub.connected().await.connection;
    exchange(&mut stream, "still open").await;
    echo(&new).await;
    drop(stream);
    timeout(LIMIT, draining).await.expect("the drained connection does not end").unwrap();
}

#[tokio::test]
async fn a_hub_of_another_authority_is_not_trusted() {
    let tunnel = TunnelId::random().unwrap();
    let (hub, other) = (TestHub::start(tunnel).await, TestHub::start(tunnel).await);
    let pinned = HubEndpoint { ca_bundle: other.endpoint(24).ca_bundle, ..hub.endpoint(24) };
    let error = join(&pinned, &generate_key_pem().unwrap(), None, None).await.unwrap_err().to_string();
    for part in ["chandler tunnel authority", &hub.installation(), "firewall", &pinned.address] {
        assert!(error.contains(part), "{error} lacks {part}");
    }
    assert_eq!(hub.joins(), []);
}

#[tokio::test]
async fn the_agent_connects_through_a_proxy_with_its_login() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let hub = TestHub::start(tunnel).await;
    let proxy = ConnectProxy::start(Some(("user", "pass word")), None).await.unwrap();
    let url = |login: &str| format!("http://{login}@{}", proxy.address());
    let config = site.config(tunnel, vec![hub.endpoint(24)]);
    let _agent = RunningAgent::start(AgentConfig { proxy: Some(url("user:pass%20word").into()), ..config });
    echo(&hub.connected().await.connection).await;
    let targets = proxy.targets();
    assert_eq!(targets.len(), 2, "the join and the connection: {targets:?}");
    assert!(targets.iter().all(|target| *target == hub.address.to_string()), "{targets:?}");

    let wrong = url("user:wrong").parse().unwrap();
    let key = generate_key_pem().unwrap();
    let error = join(&hub.endpoint(24), &key, None, Some(&wrong)).await.unwrap_err().to_string();
    assert!(error.contains("user and a password") && !error.contains("wrong"), "{error}");
}
