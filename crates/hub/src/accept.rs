//! Accepts connections of a port whose handshakes are limited.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use crate::{
    handshakes::{Change, Handshake, HandshakeLimits, Handshakes, Source},
    locks::Mutex,
    metrics::Metrics,
    server::Context,
};

/// Limit of a handshake, from the moment at which the connection is accepted. Agents wait as long.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted: most likely the process is out of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often connections that wait are compared with handshakes that take long.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A port of the hub.
pub struct Port {
    pub listener: TcpListener,
    /// Who connects to it, for logs.
    pub clients: &'static str,
    pub limits: HandshakeLimits,
    /// Counts a connection that was dropped for another one.
    pub count_dropped: fn(&Metrics),
}

/// Accepts connections until the token is canceled. Open connections continue, see `Context::sessions`.
pub async fn run<S>(
    port: Port,
    context: Arc<Context>,
    stop: CancellationToken,
    serve: impl Fn(TcpStream, SocketAddr, Slot) -> S,
) where
    S: Future<Output = ()> + Send + 'static,
{
    let Port { listener, clients, limits, count_dropped } = port;
    let slots = Slots::new(limits);
    let accept = async {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = tokio::time::sleep(CHECK_INTERVAL), if slots.has_waiting() => {
                    slots.advance();
                    continue;
                }
            };
            match accepted {
                Ok((stream, address)) => {
                    let cut = context.kill.child_token();
                    // Boxed: the futures around it would contain it several times.
                    let serving = Box::pin(serve(stream, address, slots.enter(address.ip(), cut.clone())));
                    let shared = context.clone();
                    context.sessions.spawn(async move {
                        if cut.run_until_cancelled(serving).await.is_none() && !shared.kill.is_cancelled() {
                            count_dropped(&shared.metrics);
                            tracing::debug!(%address, clients, "a connection was dropped to make room for others");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, clients, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accept).await;
}

/// The handshakes of a port. Clones share them.
#[derive(Clone)]
struct Slots(Arc<Mutex<State>>);

struct State {
    handshakes: Handshakes,
    connections: HashMap<Handshake, Connection>,
}

struct Connection {
    start: Option<oneshot::Sender<()>>,
    cut: CancellationToken,
}

/// The place of a connection among the handshakes of its port. Dropping it says that the handshake has ended.
pub struct Slot {
    slots: Slots,
    handshake: Handshake,
    started: oneshot::Receiver<()>,
}

impl Slots {
    fn new(limits: HandshakeLimits) -> Self {
        let (handshakes, connections) = (Handshakes::new(limits), HashMap::new());
        Self(Arc::new(Mutex::new(State { handshakes, connections })))
    }

    /// Adds a connection. The token is canceled if it has to make room before its handshake has ended.
    fn enter(&self, address: IpAddr, cut: CancellationToken) -> Slot {
        let (start, started) = oneshot::channel();
        let mut state = self.0.lock();
        let (handshake, changes) = state.handshakes.arrive(Source::from(address), Instant::now());
        state.connections.insert(handshake, Connection { start: Some(start), cut });
        state.apply(changes);
        Slot { slots: self.clone(), handshake, started }
    }

    fn has_waiting(&self) -> bool {
        self.0.lock().handshakes.has_waiting()
    }

    fn advance(&self) {
        let mut state = self.0.lock();
        let changes = state.handshakes.advance(Instant::now());
        state.apply(changes);
    }
}

impl State {
    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Start(handshake) => {
                    let connection = self.connections.get_mut(&handshake);
                    if let Some(start) = connection.and_then(|connection| connection.start.take()) {
                        // It fails only if the connection is being closed.
                        let _ = start.send(());
                    }
                }
                Change::Drop(handshake) => {
                    if let Some(connection) = self.connections.remove(&handshake) {
                        connection.cut.cancel();
                    }
                }
            }
        }
    }
}

impl Slot {
    /// Waits until the handshake may start. To be called once.
    pub async fn started(&mut self) {
        // The sender is dropped only together with the connection.
        let _ = (&mut self.started).await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.0.lock();
        state.connections.remove(&self.handshake);
        let changes = state.handshakes.end(self.handshake, Instant::now());
        state.apply(changes);
    }
}
