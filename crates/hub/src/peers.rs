//! The other replicas of the hub: connections to them, and what this replica does for them. One hop, never further.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use chandler_tunnel::{
    OpenError, PeerConnection, PeerHandler, Settings, TunnelKey, TunnelStream, serve_peer,
    tls::{TlsError, peer_certificate, server_name},
};
use rustls::pki_types::ServerName;
use tokio::{
    net::{TcpListener, TcpStream, lookup_host},
    task::JoinSet,
    time::timeout_at,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

use crate::{
    accept::{self, HANDSHAKE_TIMEOUT, Port, Slot},
    agents::Agents,
    handshakes::HandshakeLimits,
    keys_watch::KeysReceiver,
    locks::Mutex,
    metrics::Metrics,
    opening,
    server::Context,
};

/// How often the addresses of the other replicas are resolved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Limit of connecting to a replica, up to its first answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes of other replicas. Each replica has an address of its own, and connects once.
const HANDSHAKES: HandshakeLimits =
    HandshakeLimits { total: 64, per_source: 4, waiting: 64, patience: Duration::from_secs(2) };

/// How to find the other replicas.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// `host:port`, which resolves to the addresses of all replicas.
    pub address: String,
    /// The name in the certificate of every replica, see [`chandler_tunnel::keys::service_name`].
    pub server_name: String,
}

/// The connections to other replicas. Clones share them.
#[derive(Clone)]
pub struct Peers(Arc<Shared>);

struct Shared {
    replica: String,
    keys: KeysReceiver,
    metrics: Metrics,
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connections: HashMap<SocketAddr, PeerConnection>,
    /// Addresses to which a task connects, or is connected.
    busy: HashSet<SocketAddr>,
    /// Addresses of this replica.
    own: HashSet<SocketAddr>,
}

/// Why a replica cannot be reached.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("no answer within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout,
}

impl Peers {
    pub fn new(replica: String, keys: KeysReceiver, metrics: Metrics, settings: Settings) -> Self {
        Self(Arc::new(Shared { replica, keys, metrics, settings, state: Mutex::default() }))
    }

    /// Returns the connections on which streams can be opened.
    pub fn connections(&self) -> Vec<PeerConnection> {
        let state = self.0.state.lock();
        state.connections.values().filter(|connection| connection.is_usable()).cloned().collect()
    }

    /// Connects to the other replicas until the future is dropped.
    pub async fn run(self, options: PeerOptions) -> Result<(), TlsError> {
        // The port does not matter for the name.
        let name = server_name(&format!("{}:0", options.server_name))?;
        let mut tasks = JoinSet::new();
        loop {
            match tokio::time::timeout(RESOLVE_TIMEOUT, lookup_host(&options.address)).await {
                Ok(Ok(addresses)) => {
                    for address in addresses {
                        self.connect_once(address, &name, &mut tasks);
                    }
                }
                // Nothing is concluded: connections to replicas that are alive stay open.
                Ok(Err(error)) => {
                    tracing::debug!(%error, peers = options.address, "cannot resolve the other replicas");
                }
                Err(_) => tracing::debug!(peers = options.address, "resolving the other replicas timed out"),
            }
            while tasks.try_join_next().is_some() {}
            tokio::time::sleep(RESOLVE_INTERVAL).await;
        }
    }

    /// Starts a task that connects to an address, unless there is one, or the address is that of this replica.
    fn connect_once(&self, address: SocketAddr, name: &ServerName<'static>, tasks: &mut JoinSet<()>) {
        let mut state = self.0.state.lock();
        if state.own.contains(&address) || !state.busy.insert(address) {
            return;
        }
        drop(state);
        let (peers, name) = (self.clone(), name.clone());
        tasks.spawn(async move {
            peers.stay_connected(address, name).await;
            peers.0.state.lock().busy.remove(&address);
        });
    }

    /// Connects to an address, and returns when the connection has ended.
    async fn stay_connected(&self, address: SocketAddr, name: ServerName<'static>) {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.connect(address, name)).await;
        let (connection, replica) = match connected.unwrap_or(Err(PeerError::Timeout)) {
            Ok(connected) => connected,
            Err(error) => return tracing::debug!(%error, %address, "cannot connect to another replica"),
        };
        if replica == self.0.replica {
            connection.close();
            self.0.state.lock().own.insert(address);
            return;
        }
        let _counted = self.0.metrics.peer_connected();
        tracing::info!(%address, replica, "connected to another replica");
        self.0.state.lock().connections.insert(address, connection.clone());
        let reason = connection.closed().await;
        self.0.state.lock().connections.remove(&address);
        tracing::info!(%address, replica, %reason, "disconnected from another replica");
    }

    async fn connect(
        &self,
        address: SocketAddr,
        name: ServerName<'static>,
    ) -> Result<(PeerConnection, String), PeerError> {
        let connector = TlsConnector::from(self.0.keys.borrow().peer_client.clone());
        let stream = TcpStream::connect(address).await.map_err(PeerError::Connect)?;
        stream.set_nodelay(true).map_err(PeerError::Connect)?;
        let stream = connector.connect(name, stream).await.map_err(PeerError::Connect)?;
        let connection = PeerConnection::start(stream, &self.0.settings).await?;
        let replica = connection.replica().await?;
        Ok((connection, replica))
    }
}

/// Opens streams for other replicas, on connections of this one only.
struct LocalAgents {
    replica: String,
    agents: Agents,
}

impl PeerHandler for LocalAgents {
    fn replica(&self) -> String {
        self.replica.clone()
    }

    async fn open(&self, tunnel: TunnelKey, epoch: u32) -> Result<TunnelStream, OpenError> {
        opening::open_here(&self.agents, tunnel, epoch).await
    }
}

/// Accepts other replicas until the token is canceled. Open connections continue, see `Context::sessions`.
pub async fn serve(listener: TcpListener, context: Arc<Context>, stop: CancellationToken) {
    let handler = Arc::new(LocalAgents { replica: context.replica.clone(), agents: context.agents.clone() });
    let port = Port { listener, clients: "other replicas", limits: HANDSHAKES, count_dropped: |_| {} };
    let serving = context.clone();
    accept::run(port, context, stop, move |stream, address, slot| {
        serve_one(serving.clone(), handler.clone(), stream, address, slot)
    })
    .await;
}

async fn serve_one(
    context: Arc<Context>,
    handler: Arc<LocalAgents>,
    stream: TcpStream,
    address: SocketAddr,
    mut slot: Slot,
) {
    let deadline = tokio::time::Instant::now() + HANDSHAKE_TIMEOUT;
    if timeout_at(deadline, slot.started()).await.is_err() {
        return tracing::debug!(%address, "a replica has to retry: there are too many handshakes");
    }
    let keys = context.keys.borrow().clone();
    let acceptor = TlsAcceptor::from(keys.peer_server.clone());
    let stream = match timeout_at(deadline, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, %address, "the TLS handshake of a replica failed"),
        Err(_) => return tracing::debug!(%address, "the TLS handshake of a replica timed out"),
    };
    drop(slot);
    let (tcp, tls) = stream.get_ref();
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%error, "cannot disable the delay of a connection");
    }
    let certificate = peer_certificate(tls.peer_certificates()).ok().flatten();
    // The same authority signs the certificates of agents, which must not reach the clusters of others.
    if !certificate.is_some_and(|certificate| certificate.is_hub_of(keys.keys.installation)) {
        return tracing::warn!(%address, "a client of the port for replicas was refused: it is not a hub");
    }
    let reason =
        serve_peer(stream, handler, context.pump.clone(), &context.peer_settings, &context.stop).await;
    tracing::debug!(%address, %reason, "a replica is disconnected");
}
