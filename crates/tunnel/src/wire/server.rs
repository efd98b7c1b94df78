//! The side of a connection that answers requests: the agent towards its hub, and a hub towards its peers.

use std::pin::pin;

use h2::{RecvStream, server::SendResponse};
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    client::{CloseReason, HANDSHAKE_TIMEOUT},
    keep_alive::{Monitored, keep_alive},
    settings::Settings,
};
use crate::budget::CountedBytes;

/// Answers requests until the connection ends. Each request has its own task; all of them end with the connection.
///
/// When `drain` is canceled, GOAWAY is sent, and the connection ends when its streams have ended, at the latest after the
/// drain timeout.
pub(super) async fn serve<T, F>(
    io: T,
    settings: &Settings,
    drain: CancellationToken,
    mut handle: impl FnMut(Request<RecvStream>, SendResponse<CountedBytes>) -> F,
) -> CloseReason
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()> + Send + 'static,
{
    let (io, received) = Monitored::new(io);
    let mut connection = match timeout(HANDSHAKE_TIMEOUT, settings.server().handshake(io)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return CloseReason::Lost(error.to_string()),
        Err(_) => return CloseReason::Lost("the other side did not start HTTP/2".to_owned()),
    };
    let pings = connection.ping_pong();
    let mut pinging = pin!(async {
        match pings {
            Some(pings) => keep_alive(pings, received, settings).await,
            None => std::future::pending().await,
        }
    });
    let mut drained_by: Option<Instant> = None;
    let mut requests = JoinSet::new();
    loop {
        let deadline = drained_by.unwrap_or_else(Instant::now);
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, responder))) => {
                    requests.spawn(handle(request, responder));
                }
                Some(Err(error)) => return CloseReason::Lost(error.to_string()),
                None if drained_by.is_some() => return CloseReason::ClosedHere,
                None => return CloseReason::Closed,
            },
            reason = &mut pinging => return reason,
            () = drain.cancelled(), if drained_by.is_none() => {
                connection.graceful_shutdown();
                drained_by = Some(Instant::now() + settings.drain_timeout);
            }
            () = sleep_until(deadline), if drained_by.is_some() => return CloseReason::DrainTimeout,
            Some(ended) = requests.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the task of a tunnel request has failed");
                }
            }
        }
    }
}
