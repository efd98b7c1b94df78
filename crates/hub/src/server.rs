//! Starts the listeners of the hub, and stops them gracefully.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use chandler_tunnel::{Budget, Pump, Settings, budget};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agents::Agents,
    directory::DirectoryReceiver,
    handshakes::HandshakeLimits,
    join::JoinEndpoint,
    keys_watch::KeysReceiver,
    metrics::Metrics,
    peers::{self, PeerOptions, Peers},
    proxy, public,
    report::Reporter,
    revocation::Revocations,
};

/// How long the proxy accepts clients after the hub began to stop, if another replica can serve them: the Service may send
/// some until it knows.
const PROXY_GRACE: Duration = Duration::from_secs(3);
/// How long tasks may take to end after their connections were cut.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the hub cannot start, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the keys of the tunnels were replaced, so all connections were cut; start the hub again")]
    KeysReplaced,
}

/// The addresses of the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// CONNECT proxy for clients in the management cluster.
    pub proxy: SocketAddr,
    /// TLS for agents.
    pub public: SocketAddr,
    /// TLS for other replicas.
    pub peer: SocketAddr,
}

/// The options of a hub.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// A port 0 is replaced by a free one, see [`Hub::addresses`].
    pub addresses: Addresses,
    /// How to find the other replicas. `None` means that there are none.
    pub peers: Option<PeerOptions>,
    /// Limit of the bytes that wait in buffers.
    pub buffer_limit: usize,
    /// How long open streams may continue when the hub stops.
    pub drain_timeout: Duration,
    /// Windows, limits and times of connections to agents.
    pub settings: Settings,
    /// Limits of the handshakes of agents.
    pub handshakes: HandshakeLimits,
}

impl HubOptions {
    /// Returns the defaults for these addresses.
    pub fn new(addresses: Addresses) -> Self {
        Self {
            addresses,
            peers: None,
            buffer_limit: budget::DEFAULT_LIMIT,
            drain_timeout: Duration::from_secs(30),
            settings: Settings::tunnel(),
            handshakes: HandshakeLimits::default(),
        }
    }

    /// Returns a pump with the limit of these options.
    pub fn new_pump(&self) -> Pump {
        Pump::new(Budget::new(self.buffer_limit))
    }
}

/// What a hub gets from outside.
#[derive(Clone)]
pub struct Inputs {
    pub keys: KeysReceiver,
    pub directory: DirectoryReceiver,
    pub reporter: Arc<dyn Reporter>,
    pub metrics: Metrics,
    /// See [`HubOptions::new_pump`].
    pub pump: Pump,
}

/// What all connections of a hub share.
pub struct Context {
    /// A random id of this process, by which a replica recognizes itself.
    pub replica: String,
    pub keys: KeysReceiver,
    pub directory: DirectoryReceiver,
    pub revocations: Revocations,
    pub agents: Agents,
    pub peers: Peers,
    pub join: JoinEndpoint,
    pub pump: Pump,
    pub metrics: Metrics,
    pub tunnel_settings: Settings,
    pub peer_settings: Settings,
    pub drain_timeout: Duration,
    /// Canceled when the hub begins to stop: connections are drained.
    pub stop: CancellationToken,
    /// Canceled when the drain timeout has passed: connections are cut.
    pub kill: CancellationToken,
    /// The connections of clients.
    pub streams: TaskTracker,
    /// The connections of agents and of other replicas.
    pub sessions: TaskTracker,
}

/// A running hub. Dropping it cuts all connections; [`Hub::shutdown`] drains them.
pub struct Hub {
    addresses: Addresses,
    context: Arc<Context>,
    /// Ends the proxy listener.
    proxy_stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Hub {
    /// Binds the listeners and starts to serve.
    pub async fn start(options: HubOptions, inputs: Inputs) -> Result<Self, HubError> {
        let HubOptions { addresses, peers, handshakes, .. } = options.clone();
        let (proxy_listener, proxy_address) = bind(addresses.proxy).await?;
        let (public_listener, public_address) = bind(addresses.public).await?;
        let (peer_listener, peer_address) = bind(addresses.peer).await?;
        let addresses = Addresses { proxy: proxy_address, public: public_address, peer: peer_address };
        let context = Arc::new(Context::new(options, inputs));
        let (proxy_stop, stop) = (CancellationToken::new(), context.stop.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(context.revocations.clone().run());
        tasks.spawn(proxy::run(proxy_listener, context.clone(), proxy_stop.clone()));
        tasks.spawn(public::run(public_listener, handshakes, context.clone(), stop.clone()));
        tasks.spawn(peers::serve(peer_listener, context.clone(), stop));
        if let Some(options) = peers {
            let peers = context.peers.clone();
            tasks.spawn(async move {
                if let Err(error) = peers.run(options).await {
                    tracing::error!(%error, "the hub cannot connect to its other replicas");
                }
            });
        }
        Ok(Self { addresses, context, proxy_stop, tasks })
    }

    /// Returns the bound addresses.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Stops: agents connect to other replicas, open streams may continue until the drain timeout, then they are cut.
    pub async fn shutdown(mut self) {
        let deadline = Instant::now() + self.context.drain_timeout;
        self.context.stop.cancel();
        if !self.context.peers.connections().is_empty() {
            let _ = timeout_at(deadline, tokio::time::sleep(PROXY_GRACE)).await;
        }
        self.proxy_stop.cancel();
        self.context.streams.close();
        self.context.sessions.close();
        let ended = async {
            self.context.streams.wait().await;
            self.context.sessions.wait().await;
        };
        if timeout_at(deadline, ended).await.is_err() {
            tracing::warn!("open streams did not end in time; they are cut");
        }
        self.context.kill.cancel();
        let ended = async {
            self.context.streams.wait().await;
            self.context.sessions.wait().await;
        };
        let _ = tokio::time::timeout(END_TIMEOUT, ended).await;
        self.tasks.shutdown().await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.context.stop.cancel();
        self.proxy_stop.cancel();
        self.context.kill.cancel();
    }
}

impl Context {
    fn new(options: HubOptions, inputs: Inputs) -> Self {
        let HubOptions { drain_timeout, settings, .. } = options;
        let Inputs { keys, directory, reporter, metrics, pump } = inputs;
        let replica = format!("{:016x}", fastrand::u64(..));
        let tunnel_settings = Settings { drain_timeout, ..settings };
        let peer_settings = Settings { max_streams: Settings::peer().max_streams, ..tunnel_settings.clone() };
        Self {
            revocations: Revocations::new(directory.clone()),
            agents: Agents::new(replica.clone(), reporter.clone(), metrics.clone()),
            peers: Peers::new(replica.clone(), keys.clone(), metrics.clone(), peer_settings.clone()),
            join: JoinEndpoint::new(keys.clone(), directory.clone(), reporter, metrics.clone()),
            pump,
            replica,
            keys,
            directory,
            metrics,
            tunnel_settings,
            peer_settings,
            drain_timeout,
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            streams: TaskTracker::new(),
            sessions: TaskTracker::new(),
        }
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), HubError> {
    let error = |source| HubError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(error)?;
    let bound = listener.local_addr().map_err(error)?;
    Ok((listener, bound))
}
