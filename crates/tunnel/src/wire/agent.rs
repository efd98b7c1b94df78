//! The agent's side of a connection to a hub.

use std::{io, sync::Arc, time::Duration};

use h2::{RecvStream, server::SendResponse};
use http::{Method, Request, Response, StatusCode};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    ABOUT_PATH, CONFIG_PATH, DRAIN_PATH, HUB_HEADER, TARGET_AUTHORITY,
    client::{CloseReason, REQUEST_TIMEOUT},
    message::{read_body, respond, respond_json},
    server::serve,
    settings::Settings,
};
use crate::{
    budget::CountedBytes,
    join_message::{About, HubList, MAX_CONFIG_BYTES},
    pump::Pump,
    stream::TunnelStream,
};

/// Deadline of dialing the target; the hub gives up half a second later.
pub const DIAL_TIMEOUT: Duration = Duration::from_millis(3500);

/// What an agent does for the hub on the other side of one connection.
pub trait AgentHandler: Send + Sync + 'static {
    type Target: AsyncRead + AsyncWrite + Send + 'static;

    /// Dials the one target of the agent. [`DIAL_TIMEOUT`] applies.
    fn dial(&self) -> impl Future<Output = io::Result<Self::Target>> + Send;

    /// Returns what the hub shows about this agent. `replica` is the id of the hub's replica on the other side.
    fn about(&self, replica: Option<&str>) -> About;

    /// Stores a new list of hubs, and connects to them. An error is answered to the hub.
    fn configure(&self, hubs: HubList) -> impl Future<Output = Result<(), String>> + Send;

    /// The hub drains this connection: the agent should connect again at once. Open streams continue.
    fn draining(&self);
}

/// Serves the hub on an established TLS connection until it ends.
///
/// When `shutdown` is canceled, the connection is drained: the hub opens no more streams, and open ones may continue for
/// the drain timeout of the settings.
pub async fn serve_agent<T, H>(
    io: T,
    handler: Arc<H>,
    pump: Pump,
    settings: &Settings,
    shutdown: &CancellationToken,
) -> CloseReason
where
    T: AsyncRead + AsyncWrite + Unpin,
    H: AgentHandler,
{
    let drain = shutdown.child_token();
    let handle = {
        let drain = drain.clone();
        move |request, responder| answer(request, responder, handler.clone(), pump.clone(), drain.clone())
    };
    serve(io, settings, drain, handle).await
}

async fn answer<H: AgentHandler>(
    request: Request<RecvStream>,
    responder: SendResponse<CountedBytes>,
    handler: Arc<H>,
    pump: Pump,
    drain: CancellationToken,
) {
    let (head, body) = request.into_parts();
    let authority = head.uri.authority().map(http::uri::Authority::as_str);
    if head.method == Method::CONNECT {
        if authority == Some(TARGET_AUTHORITY) {
            connect(responder, body, &*handler, &pump).await;
        } else {
            respond(responder, StatusCode::NOT_FOUND, "an agent serves only its API server");
        }
        return;
    }
    match (head.method, head.uri.path()) {
        (Method::GET, ABOUT_PATH) => {
            let replica = head.headers.get(HUB_HEADER).and_then(|value| value.to_str().ok());
            respond_json(responder, &handler.about(replica));
        }
        (Method::PUT, CONFIG_PATH) => configure(responder, body, &*handler).await,
        (Method::POST, DRAIN_PATH) => {
            respond(responder, StatusCode::NO_CONTENT, "");
            if !drain.is_cancelled() {
                drain.cancel();
                handler.draining();
            }
        }
        _ => respond(responder, StatusCode::NOT_FOUND, "unknown request"),
    }
}

async fn connect<H: AgentHandler>(
    mut responder: SendResponse<CountedBytes>,
    body: RecvStream,
    handler: &H,
    pump: &Pump,
) {
    if pump.budget().is_exhausted() {
        let text = "the memory of the agent for buffers is exhausted";
        return respond(responder, StatusCode::SERVICE_UNAVAILABLE, text);
    }
    let dialed = tokio::select! {
        dialed = timeout(DIAL_TIMEOUT, handler.dial()) => dialed,
        // The hub no longer waits for an answer.
        _ = std::future::poll_fn(|cx| responder.poll_reset(cx)) => return,
    };
    let target = match dialed {
        Ok(Ok(target)) => target,
        Ok(Err(error)) => {
            let text = format!("the agent cannot reach the API server: {error}");
            return respond(responder, StatusCode::BAD_GATEWAY, &text);
        }
        Err(_) => {
            let text = "the API server did not accept the connection of the agent in time";
            return respond(responder, StatusCode::BAD_GATEWAY, text);
        }
    };
    let Ok(send) = responder.send_response(Response::new(()), false) else {
        return;
    };
    let stream = TunnelStream::new(send, body, None);
    if let Err(error) = pump.run(stream, target, bytes::Bytes::new()).await {
        tracing::debug!(%error, "a stream has ended early");
    }
}

async fn configure<H: AgentHandler>(responder: SendResponse<CountedBytes>, body: RecvStream, handler: &H) {
    let content = match timeout(REQUEST_TIMEOUT, read_body(body, MAX_CONFIG_BYTES)).await {
        Ok(Ok(content)) => content,
        Ok(Err(error)) => return respond(responder, StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()),
        Err(_) => {
            let text = "the list of hubs did not arrive in time";
            return respond(responder, StatusCode::REQUEST_TIMEOUT, text);
        }
    };
    // The error of serde could quote a token.
    let Ok(hubs) = serde_json::from_slice::<HubList>(&content) else {
        return respond(responder, StatusCode::BAD_REQUEST, "the list of hubs cannot be read");
    };
    match handler.configure(hubs).await {
        Ok(()) => respond(responder, StatusCode::NO_CONTENT, ""),
        Err(text) => respond(responder, StatusCode::INTERNAL_SERVER_ERROR, &text),
    }
}
