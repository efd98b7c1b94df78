//! Connections without TLS, for protocols that bring their own encryption.

use std::{io, net::SocketAddr};

use chandler_core::addresses::{RefusedAddress, ServerCertificate};
use reqwest::Url;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{HttpClient, resolver::resolve};
use crate::SourceError;

impl HttpClient {
    /// Connects to a host, without a proxy. The name is resolved once, and only allowed addresses are used. `url` is for
    /// messages.
    pub async fn connect_tcp(&self, url: &Url, host: &str, port: u16) -> Result<TcpStream, SourceError> {
        let failed = |reason: String| SourceError::RequestFailed { url: url.to_string(), reason };
        let deadline = Instant::now() + self.limits.connect_timeout;
        // The protocol verifies the server by itself.
        let addresses = resolve(&self.policy, host, port, ServerCertificate::Verified).await;
        let addresses = addresses.map_err(|error| match error.downcast_ref::<RefusedAddress>() {
            Some(refused) => SourceError::AddressRefused { url: url.to_string(), refused: refused.clone() },
            None => failed(error.to_string()),
        })?;
        let stream = connect_first(&addresses, deadline).await;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        Ok(stream)
    }
}

/// Connects to the first address that accepts. Each gets an equal part of the time that is left until the deadline, so that one
/// that does not answer leaves some for the others.
async fn connect_first(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let part = deadline.saturating_duration_since(Instant::now())
        / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::other("the host has no address");
    for address in addresses {
        match timeout(part, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => {
                let reason = format!("{address} did not accept a connection within {part:.1?}");
                last = io::Error::new(io::ErrorKind::TimedOut, reason);
            }
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(200);

    /// Returns a listener that does not answer any more, because its queue is full, and the connections in the queue.
    async fn silent() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(connected) = timeout(MOMENT, TcpStream::connect(address)).await {
            waiting.push(connected.unwrap());
            assert!(waiting.len() < 100, "the queue does not fill up");
        }
        (listener, waiting)
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_others() {
        let (dead, _waiting) = silent().await;
        let alive = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (dead, alive) = (dead.local_addr().unwrap(), alive.local_addr().unwrap());
        let connected = connect_first(&[dead, alive], Instant::now() + 2 * MOMENT).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap(), alive);
        let failed = connect_first(&[dead], Instant::now() + MOMENT).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(connect_first(&[], Instant::now() + MOMENT).await.is_err());
    }
}
