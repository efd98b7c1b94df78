//! The public port: TLS with the protocols `join` and `tunnel`, and nothing else.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use chandler_tunnel::tls::{Protocol, peer_certificate};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{metrics::HandshakeResult, server::Context, session};

/// Limit of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent handshakes and joins. Further connections are closed at once; agents retry.
const MAX_HANDSHAKES: usize = 256;
/// Pause after a connection could not be accepted: most likely the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the token is canceled. Open connections continue, see `Context::sessions`.
pub async fn run(listener: TcpListener, context: Arc<Context>, stop: CancellationToken) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // Closed without an answer: agents retry.
                    let Ok(permit) = handshakes.clone().try_acquire_owned() else {
                        context.metrics.handshake(HandshakeResult::Unavailable);
                        continue;
                    };
                    let serving = serve(context.clone(), stream, address, permit);
                    let kill = context.kill.clone();
                    context.sessions.spawn(async move {
                        kill.run_until_cancelled(serving).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an agent");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accept).await;
}

async fn serve(context: Arc<Context>, stream: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit) {
    if !context.directory.borrow().is_listed() {
        context.metrics.handshake(HandshakeResult::Unavailable);
        return tracing::debug!(%address, "an agent has to retry: the ClusterTunnels are not listed yet");
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot disable the delay of a connection");
    }
    let acceptor = TlsAcceptor::from(context.keys.borrow().public.clone());
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            context.metrics.handshake(HandshakeResult::Failed);
            return tracing::debug!(%error, %address, "the TLS handshake of an agent failed");
        }
        Err(_) => {
            context.metrics.handshake(HandshakeResult::Failed);
            return tracing::debug!(%address, "the TLS handshake of an agent timed out");
        }
    };
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
            context.join.serve(stream, address, certificate).await;
            drop(permit);
        }
        (Some(Protocol::Tunnel), Some(certificate)) => {
            // Boxed: it outlives what the handshake needs.
            Box::pin(session::serve(context, stream, certificate, address, || drop(permit))).await;
        }
        // No protocol at all, or a tunnel without a certificate.
        _ => context.metrics.handshake(HandshakeResult::Failed),
    }
}
