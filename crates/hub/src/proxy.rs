//! The CONNECT proxy for clients in the management cluster.

mod authorize;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use chandler_tunnel::{
    TunnelStream,
    connect_request::{ConnectRequest, read_connect, write_established, write_refusal},
    proxy_credentials::ProxyScope,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

pub use self::authorize::{Decision, LastSeen, Refusal, authorize};
use crate::{accept::ACCEPT_PAUSE, directory::TunnelEntry, opening, server::Context};

/// Limit of reading a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of writing a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Open connections of clients. Further connections wait.
const MAX_CONNECTIONS: usize = 16_384;
/// An idle connection of a client whose machine is gone ends after 2 minutes. Otherwise it would keep its stream for ever: the
/// hub cannot know whether a client that sends nothing is alive. If there is data that the client has not acknowledged, the
/// kernel ends the connection, after about 15 minutes (`tcp_retries2`). `TCP_USER_TIMEOUT` would be sooner, but also ends
/// connections of clients that are alive and read nothing for that time.
const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_mins(1))
    .with_interval(Duration::from_secs(15))
    .with_retries(4);

/// Accepts connections until the token is canceled. Open connections continue, see `Context::streams`.
pub async fn run(listener: TcpListener, context: Arc<Context>, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accept = async {
        loop {
            let slot = slots.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, address)) => {
                    let serving = serve(context.clone(), stream, address);
                    context.streams.spawn(async move {
                        serving.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client of the proxy");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accept).await;
}

async fn serve(context: Arc<Context>, mut stream: TcpStream, address: SocketAddr) {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "cannot set the options of a connection");
    }
    let served = context.kill.run_until_cancelled(connect(&context, &mut stream, address)).await;
    let Some(Err(refusal)) = served else { return };
    context.metrics.refused(&refusal);
    let message = refusal.to_string();
    let response = write_refusal(&mut stream, refusal.status(), &message);
    if let Ok(Err(error)) = tokio::time::timeout(RESPONSE_TIMEOUT, response).await {
        tracing::debug!(%error, %address, "cannot answer a client of the proxy");
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(&KEEP_ALIVE)
}

/// Serves a connection until it ends. Returns a refusal if no stream was opened and the client waits for a response.
async fn connect(context: &Context, stream: &mut TcpStream, address: SocketAddr) -> Result<(), Refusal> {
    let Ok(request) = tokio::time::timeout(REQUEST_TIMEOUT, read_connect(stream)).await else {
        return Ok(());
    };
    let (request, early) = match request {
        Ok(request) => request,
        Err(error) => return Refusal::of_request(&error).map_or(Ok(()), Err),
    };
    let entry = decide(context, &request).inspect_err(|refusal| {
        tracing::info!(%address, authority = request.authority, reason = refusal.reason(), "a client was refused");
    })?;
    let tunnel = entry.key();
    // Taken before the stream is opened: a revocation meanwhile cuts it.
    let revoked = context.revocations.token(tunnel, entry.epoch).ok_or(Refusal::WrongPassword)?;
    if context.pump.budget().is_exhausted() {
        return Err(Refusal::Overloaded);
    }
    let last_seen = LastSeen(entry.last_seen);
    let opened = opening::open(&context.agents, &context.peers, tunnel, entry.epoch, last_seen);
    let opened = revoked.run_until_cancelled(opened).await.ok_or(Refusal::WrongPassword)?;
    let opened = opened.inspect_err(|refusal| {
        let TunnelEntry { namespace, cluster, .. } = &*entry;
        tracing::info!(namespace, cluster, %refusal, "a client could not be connected");
    })?;
    revoked.run_until_cancelled(carry(context, opened, stream, early)).await;
    Ok(())
}

/// Decides with the current directory and keys.
fn decide(context: &Context, request: &ConnectRequest) -> Decision {
    let keys = context.keys.borrow().clone();
    let directory = context.directory.borrow().clone();
    authorize(&directory, request, |entry, password| {
        let TunnelEntry { namespace, cluster, id, epoch, .. } = entry;
        let scope = ProxyScope { namespace, cluster, tunnel: *id, epoch: *epoch };
        scope.verify(&keys.keys.signing, password)
    })
}

async fn carry(context: &Context, opened: TunnelStream, stream: &mut TcpStream, early: Bytes) {
    let established = tokio::time::timeout(RESPONSE_TIMEOUT, write_established(stream)).await;
    if !matches!(established, Ok(Ok(()))) {
        return;
    }
    let _counted = context.metrics.stream_opened();
    if let Err(error) = context.pump.run(opened, stream, early).await {
        tracing::debug!(%error, "a stream has ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_whose_machine_is_gone_are_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        set_options(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let (time, interval) =
            (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
        let noticed = time + interval * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(noticed, Duration::from_mins(2));
    }
}
