//! One connection to a hub, from the dial to its end.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use chandler_tunnel::{
    AgentHandler, CloseReason, HubEndpoint,
    join_message::{About, HubList},
    serve_agent,
    tls::Protocol,
};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::{
    connect::{ConnectError, connect},
    join::JoinError,
    status::Entry,
    supervisor::Shared,
};

/// Why a session has ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("no certificate: {0}")]
    Certificate(#[from] JoinError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the hub closed the connection without using it ({0}); the certificate may be revoked")]
    NotAccepted(CloseReason),
    #[error("the connection was lost: {0}")]
    Lost(CloseReason),
    #[error("the hub asks to connect again")]
    Drained,
    #[error("the agent stops")]
    Stopped,
}

/// The end of a session.
#[derive(Debug)]
pub struct Ended {
    pub error: SessionError,
    /// How long the hub has used the connection. `None` if it never did.
    pub lasted: Option<Duration>,
}

/// Connects to a hub and serves it until the connection ends, the hub drains it, or `stop` is canceled and open streams have
/// ended.
pub async fn run(shared: &Arc<Shared>, hub: &HubEndpoint, slot: u64, stop: &CancellationToken) -> Ended {
    let connected = tokio::select! {
        connected = open(shared, hub) => connected,
        () = stop.cancelled() => Err(SessionError::Stopped),
    };
    match connected {
        Ok(stream) => serve(shared, hub, slot, stop, stream).await,
        Err(error) => Ended { error, lasted: None },
    }
}

async fn open(shared: &Shared, hub: &HubEndpoint) -> Result<TlsStream<TcpStream>, SessionError> {
    let certificate = shared.credentials.certificate(hub).await?;
    let proxy = shared.settings.proxy.as_ref();
    Ok(connect(hub, proxy, Some(&certificate.pem), Protocol::Tunnel).await?)
}

async fn serve(
    shared: &Arc<Shared>,
    hub: &HubEndpoint,
    slot: u64,
    stop: &CancellationToken,
    stream: TlsStream<TcpStream>,
) -> Ended {
    let handler = Arc::new(Handler::new(shared.clone(), hub, slot));
    let (pump, wire) = (shared.pump.clone(), shared.wire.clone());
    let (served, stopped) = (handler.clone(), stop.clone());
    let mut serving = Box::pin(async move { serve_agent(stream, served, pump, &wire, &stopped).await });
    let reason = tokio::select! {
        reason = &mut serving => Some(reason),
        () = handler.drained.cancelled() => None,
    };
    handler.hide();
    let lasted = handler.accepted.get().map(Instant::elapsed);
    let error = match reason {
        // Open streams end on their own while the agent connects again.
        None => {
            shared.draining.spawn(serving);
            SessionError::Drained
        }
        Some(_) if stop.is_cancelled() => SessionError::Stopped,
        Some(reason) if lasted.is_none() => {
            shared.credentials.note_refused(hub);
            SessionError::NotAccepted(reason)
        }
        Some(reason) => {
            shared.credentials.note_lost();
            SessionError::Lost(reason)
        }
    };
    Ended { error, lasted }
}

/// Answers the hub on one connection.
struct Handler {
    shared: Arc<Shared>,
    hub: HubEndpoint,
    slot: u64,
    /// When the hub has accepted the connection: it asks about the agent first.
    accepted: OnceLock<Instant>,
    /// Shows the connection in the status.
    entry: Mutex<Option<Entry>>,
    drained: CancellationToken,
}

impl Handler {
    fn new(shared: Arc<Shared>, hub: &HubEndpoint, slot: u64) -> Self {
        Self {
            shared,
            hub: hub.clone(),
            slot,
            accepted: OnceLock::new(),
            entry: Mutex::default(),
            drained: CancellationToken::new(),
        }
    }

    /// Removes the connection from the status: it is lost, or takes no new streams.
    fn hide(&self) {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl AgentHandler for Handler {
    type Target = TcpStream;

    async fn dial(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.shared.settings.config.target).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn about(&self, replica: Option<&str>) -> About {
        if self.accepted.set(Instant::now()).is_ok() && !self.drained.is_cancelled() {
            tracing::info!(hub = self.hub.address, replica, "connected");
            let entry = Entry::insert(&self.shared.status, self.slot, &self.hub, replica);
            *self.entry.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
        }
        self.shared.about.clone()
    }

    async fn configure(&self, list: HubList) -> Result<(), String> {
        self.shared.set_hubs(list, &self.hub).await.map_err(|error| error.to_string())
    }

    fn draining(&self) {
        self.drained.cancel();
    }
}
