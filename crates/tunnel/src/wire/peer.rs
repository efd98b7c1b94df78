//! Connections between two hubs: a hub without the agent asks the others, and no further.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    ABOUT_PATH, HOP_HEADER,
    client::{ClientConnection, CloseReason, OpenError},
    message::{connect, printable, request, respond, respond_json},
    server::serve,
    settings::Settings,
};
use crate::{
    budget::CountedBytes, identity::TunnelKey, join_message::MAX_ABOUT_BYTES, pump::Pump,
    stream::TunnelStream,
};

const MAX_REPLICA_CHARS: usize = 253;

/// What a hub says about itself.
#[derive(Debug, Serialize, Deserialize)]
struct PeerAbout {
    replica: String,
}

/// A connection to another hub. Clones share it.
#[derive(Clone)]
pub struct PeerConnection {
    connection: Arc<ClientConnection>,
}

impl PeerConnection {
    /// Starts HTTP/2 on an established TLS connection to a hub. A task of the current runtime drives it until it ends.
    pub async fn start<T>(io: T, settings: &Settings) -> Result<Self, OpenError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = ClientConnection::start(io, settings).await?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Returns the id of the other hub's replica. A hub closes a connection that leads to itself.
    pub async fn replica(&self) -> Result<String, OpenError> {
        let request = request(Method::GET, ABOUT_PATH)?;
        let answer = self.connection.exchange(request, Bytes::new(), MAX_ABOUT_BYTES).await?;
        let about: PeerAbout =
            serde_json::from_slice(&answer).map_err(|error| OpenError::Failed(error.to_string()))?;
        Ok(printable(&about.replica, MAX_REPLICA_CHARS))
    }

    /// Opens a stream to the API server of a tunnel through the other hub, if that has a connection to an agent of this epoch.
    pub async fn open(
        &self,
        tunnel: TunnelKey,
        epoch: u32,
        deadline: Duration,
    ) -> Result<TunnelStream, OpenError> {
        let mut request = connect(&authority(tunnel, epoch))?;
        request.headers_mut().insert(HOP_HEADER, HeaderValue::from_static("1"));
        self.connection.open(request, deadline).await
    }

    /// Returns whether streams can be opened.
    pub fn is_usable(&self) -> bool {
        self.connection.is_usable()
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) -> CloseReason {
        self.connection.closed().await
    }

    /// Closes the connection and all of its streams at once.
    pub fn close(&self) {
        self.connection.close();
    }

    /// Opens no more streams, and closes the connection when the open ones have ended, at the latest at the deadline.
    pub async fn shutdown(&self, deadline: Duration) -> CloseReason {
        self.connection.close_when_drained(Instant::now() + deadline).await
    }
}

impl fmt::Debug for PeerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerConnection").field("usable", &self.is_usable()).finish_non_exhaustive()
    }
}

/// What a hub does for its peers.
pub trait PeerHandler: Send + Sync + 'static {
    /// Returns the id of this replica.
    fn replica(&self) -> String;

    /// Opens a stream on a connection of this hub to an agent of a tunnel, and never on one to another hub. The certificate of
    /// the agent must be of this epoch: one of the hubs may not know yet that another epoch was revoked.
    ///
    /// `Refused` is passed on to the peer; `Closing` becomes 503, and `Timeout` 504.
    fn open(
        &self,
        tunnel: TunnelKey,
        epoch: u32,
    ) -> impl Future<Output = Result<TunnelStream, OpenError>> + Send;
}

/// Returns the authority of a forwarded `CONNECT`.
fn authority(tunnel: TunnelKey, epoch: u32) -> String {
    let TunnelKey { id, owner } = tunnel;
    format!("{id}.{owner}.{epoch}")
}

/// Reads an authority that [`authority`] returned. Every other spelling is refused.
fn parse_authority(text: &str) -> Option<(TunnelKey, u32)> {
    let mut parts = text.splitn(3, '.');
    let (id, owner, epoch) = (parts.next()?, parts.next()?, parts.next()?);
    let tunnel = TunnelKey { id: id.parse().ok()?, owner: owner.parse().ok()? };
    let epoch = epoch.parse().ok()?;
    (authority(tunnel, epoch) == text).then_some((tunnel, epoch))
}

/// Serves another hub on an established TLS connection, whose certificate was verified to be a hub's, until it ends.
pub async fn serve_peer<T, H>(
    io: T,
    handler: Arc<H>,
    pump: Pump,
    settings: &Settings,
    shutdown: &CancellationToken,
) -> CloseReason
where
    T: AsyncRead + AsyncWrite + Unpin,
    H: PeerHandler,
{
    let handle = move |request, responder| answer(request, responder, handler.clone(), pump.clone());
    serve(io, settings, shutdown.clone(), handle).await
}

async fn answer<H: PeerHandler>(
    request: Request<RecvStream>,
    responder: SendResponse<CountedBytes>,
    handler: Arc<H>,
    pump: Pump,
) {
    let (head, body) = request.into_parts();
    if head.method == Method::GET && head.uri.path() == ABOUT_PATH {
        return respond_json(responder, &PeerAbout { replica: handler.replica() });
    }
    let requested = head.uri.authority().and_then(|authority| parse_authority(authority.as_str()));
    let is_forwarded = head.headers.get(HOP_HEADER).is_some_and(|value| value == "1");
    match requested {
        Some((tunnel, epoch)) if head.method == Method::CONNECT && is_forwarded => {
            let opening = handler.open(tunnel, epoch);
            forward(responder, body, opening, &pump).await;
        }
        _ => respond(responder, StatusCode::NOT_FOUND, "unknown request"),
    }
}

async fn forward(
    mut responder: SendResponse<CountedBytes>,
    body: RecvStream,
    opening: impl Future<Output = Result<TunnelStream, OpenError>>,
    pump: &Pump,
) {
    let opened = tokio::select! {
        opened = opening => opened,
        // The other hub no longer waits for an answer.
        _ = std::future::poll_fn(|cx| responder.poll_reset(cx)) => return,
    };
    let agent = match opened {
        Ok(agent) => agent,
        Err(error) => {
            let (status, text) = refusal(error);
            return respond(responder, status, &text);
        }
    };
    let Ok(send) = responder.send_response(Response::new(()), false) else {
        return;
    };
    if let Err(error) = pump.forward(agent, TunnelStream::new(send, body, None)).await {
        tracing::debug!(%error, "a forwarded stream has ended early");
    }
}

/// Returns the answer for a stream that was not opened.
fn refusal(error: OpenError) -> (StatusCode, String) {
    let text = error.to_string();
    match error {
        OpenError::Refused { status, message } => {
            let status = StatusCode::from_u16(status).ok().filter(|status| !status.is_success());
            (status.unwrap_or(StatusCode::BAD_GATEWAY), message)
        }
        OpenError::Timeout(_) => (StatusCode::GATEWAY_TIMEOUT, text),
        OpenError::TooManyStreams | OpenError::Closing => (StatusCode::SERVICE_UNAVAILABLE, text),
        OpenError::Failed(_) => (StatusCode::BAD_GATEWAY, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{TunnelId, TunnelOwner};

    #[test]
    fn a_forwarded_request_names_tunnel_owner_and_epoch() {
        let tunnel = TunnelKey { id: TunnelId::random().unwrap(), owner: TunnelOwner::of("fleet", "blue") };
        let text = authority(tunnel, 7);
        assert_eq!(parse_authority(&text), Some((tunnel, 7)));
        let (id, owner) = (tunnel.id, tunnel.owner);
        for wrong in [
            String::new(),
            id.to_string(),
            format!("{id}.7"),
            format!("{id}.{owner}"),
            format!("{id}.{owner}.07"),
            format!("{id}.{owner}.7.8"),
            format!("{id}.{owner}.7:443"),
            format!("{id}.{}.7", owner.to_string().to_uppercase()),
        ] {
            assert_eq!(parse_authority(&wrong), None, "{wrong}");
        }
    }
}
