//! The public port: TLS with the protocols `join` and `tunnel`, and nothing else.

use std::{net::SocketAddr, sync::Arc};

use chandler_tunnel::tls::{Protocol, peer_certificate};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{
    accept::{self, HANDSHAKE_TIMEOUT, Port, Slot},
    handshakes::HandshakeLimits,
    metrics::HandshakeResult,
    server::Context,
    session,
};

/// Accepts connections until the token is canceled. Open connections continue, see `Context::sessions`.
pub async fn run(
    listener: TcpListener,
    limits: HandshakeLimits,
    context: Arc<Context>,
    stop: CancellationToken,
) {
    let port = Port {
        listener,
        clients: "agents",
        limits,
        count_dropped: |metrics| metrics.handshake(HandshakeResult::Unavailable),
    };
    let serving = context.clone();
    accept::run(port, context, stop, move |stream, address, slot| {
        serve(serving.clone(), stream, address, slot)
    })
    .await;
}

/// Serves a connection. Its slot covers also what follows the handshake, until the agent is registered or has joined.
async fn serve(context: Arc<Context>, stream: TcpStream, address: SocketAddr, mut slot: Slot) {
    if !context.directory.borrow().is_listed() {
        context.metrics.handshake(HandshakeResult::Unavailable);
        return tracing::debug!(%address, "an agent has to retry: the ClusterTunnels are not listed yet");
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot disable the delay of a connection");
    }
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    if timeout_at(deadline, slot.started()).await.is_err() {
        context.metrics.handshake(HandshakeResult::Unavailable);
        return tracing::debug!(%address, "an agent has to retry: there are too many handshakes");
    }
    // Each step is boxed: its memory is free again when the next one begins, and a hub has thousands of connections.
    let Some(stream) = Box::pin(handshake(&context, stream, address, deadline)).await else { return };
    let (_, tls) = stream.get_ref();
    let protocol = Protocol::negotiated(tls.alpn_protocol());
    let certificate = match peer_certificate(tls.peer_certificates()) {
        Ok(certificate) => certificate,
        Err(error) => {
            context.metrics.handshake(HandshakeResult::Failed);
            return tracing::info!(%error, %address, "the certificate of an agent cannot be read");
        }
    };
    match (protocol, certificate) {
        (Some(Protocol::Join), certificate) => {
            context.metrics.handshake(HandshakeResult::Accepted);
            Box::pin(context.join.serve(stream, address, certificate)).await;
            drop(slot);
        }
        (Some(Protocol::Tunnel), Some(certificate)) => {
            Box::pin(session::serve(context, stream, certificate, address, || drop(slot))).await;
        }
        // No protocol at all, or a tunnel without a certificate.
        _ => context.metrics.handshake(HandshakeResult::Failed),
    }
}

/// Returns the TLS connection, or `None` if the handshake failed. Boxed, because everything that follows moves it on.
async fn handshake(
    context: &Context,
    stream: TcpStream,
    address: SocketAddr,
    deadline: Instant,
) -> Option<Box<TlsStream<TcpStream>>> {
    let acceptor = TlsAcceptor::from(context.keys.borrow().public.clone());
    match timeout_at(deadline, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(Box::new(stream)),
        Ok(Err(error)) => tracing::debug!(%error, %address, "the TLS handshake of an agent failed"),
        Err(_) => tracing::debug!(%address, "the TLS handshake of an agent timed out"),
    }
    context.metrics.handshake(HandshakeResult::Failed);
    None
}
