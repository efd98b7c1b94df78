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
    session::Session,
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
        // Boxed: its memory is free again while the session is idle.
        let admitting = Box::pin(admit(serving.clone(), stream, address, slot));
        serve(serving.clone(), admitting)
    })
    .await;
}

/// Serves a connection until it ends.
async fn serve(context: Arc<Context>, admitting: impl Future<Output = Option<Session>>) {
    if let Some(session) = admitting.await {
        session.run(&context).await;
    }
}

/// Returns the session of an agent, or `None` if there is none: the agent was refused, or it has joined. The slot covers all of it.
async fn admit(
    context: Arc<Context>,
    stream: TcpStream,
    address: SocketAddr,
    mut slot: Slot,
) -> Option<Session> {
    let stream = handshake(&context, stream, address, &mut slot).await?;
    let (_, tls) = stream.get_ref();
    let protocol = Protocol::negotiated(tls.alpn_protocol());
    let certificate = match peer_certificate(tls.peer_certificates()) {
        Ok(certificate) => certificate,
        Err(error) => {
            context.metrics.handshake(HandshakeResult::Failed);
            tracing::info!(%error, %address, "the certificate of an agent cannot be read");
            return None;
        }
    };
    match (protocol, certificate) {
        (Some(Protocol::Join), certificate) => {
            context.metrics.handshake(HandshakeResult::Accepted);
            Box::pin(context.join.serve(stream, address, certificate)).await;
            None
        }
        (Some(Protocol::Tunnel), Some(certificate)) => {
            Session::start(&context, stream, certificate, address).await
        }
        // No protocol at all, or a tunnel without a certificate.
        _ => {
            context.metrics.handshake(HandshakeResult::Failed);
            None
        }
    }
}

/// Waits until the handshake may start. Returns the TLS connection, boxed because all that follows moves it on, or `None` if the
/// handshake failed.
async fn handshake(
    context: &Context,
    stream: TcpStream,
    address: SocketAddr,
    slot: &mut Slot,
) -> Option<Box<TlsStream<TcpStream>>> {
    if !context.directory.borrow().is_listed() {
        context.metrics.handshake(HandshakeResult::Unavailable);
        tracing::debug!(%address, "an agent has to retry: the ClusterTunnels are not listed yet");
        return None;
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot disable the delay of a connection");
    }
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    if timeout_at(deadline, slot.started()).await.is_err() {
        context.metrics.handshake(HandshakeResult::Unavailable);
        tracing::debug!(%address, "an agent has to retry: there are too many handshakes");
        return None;
    }
    let acceptor = TlsAcceptor::from(context.keys.borrow().public.clone());
    match timeout_at(deadline, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(Box::new(stream)),
        Ok(Err(error)) => tracing::debug!(%error, %address, "the TLS handshake of an agent failed"),
        Err(_) => tracing::debug!(%address, "the TLS handshake of an agent timed out"),
    }
    context.metrics.handshake(HandshakeResult::Failed);
    None
}
