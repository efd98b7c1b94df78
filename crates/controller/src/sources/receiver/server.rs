//! Serves the receiver over HTTP. TLS ends at the Ingress or Gateway in front of it.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use super::{Answer, Receiver};

/// Limit of a whole connection. Git hosts wait about ten seconds.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent connections. Further connections wait.
pub const MAX_CONNECTIONS: usize = 16;
/// A push of many commits has a body of some hundred KiB.
pub const MAX_BODY_BYTES: usize = 2 << 20;

/// Serves until the future is dropped. `timeout` limits a whole connection, usually to [`CONNECTION_TIMEOUT`].
pub async fn run(listener: TcpListener, receiver: Arc<Receiver>, timeout: Duration) {
    let router = router(receiver);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let slot = slots.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                connections.spawn(async move {
                    let _slot = slot;
                    let served = http1::Builder::new()
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
                    // A connection that fails or takes too long is of interest to its client only.
                    let _ = tokio::time::timeout(timeout, served).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the receiver");
                // Most likely the process is out of file descriptors. Wait until some are closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

fn router(receiver: Arc<Receiver>) -> Router {
    Router::new().route("/hooks/{namespace}/{name}", post(receive)).with_state(receiver)
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> (StatusCode, &'static str) {
    // Before the body, so that a stranger cannot make the manager read one.
    let secret = match receiver.secret(&namespace, &name, &headers).await {
        Ok(secret) => secret,
        Err(answer) => return response(answer),
    };
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 2 MiB or incomplete\n");
    };
    response(receiver.accept(&namespace, &name, &secret, &headers, &body))
}

fn response(answer: Answer) -> (StatusCode, &'static str) {
    match answer {
        Answer::Accepted => (StatusCode::ACCEPTED, "the Source is polled\n"),
        Answer::Refused => (
            StatusCode::UNAUTHORIZED,
            "refused: check namespace and name of the Source in the URL, its spec.receiver, and the secret\n",
        ),
        Answer::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "the secret cannot be read; try again\n"),
    }
}
