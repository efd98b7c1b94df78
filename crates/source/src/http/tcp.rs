//! Connections without TLS, for protocols that bring their own encryption.

use reqwest::Url;
use tokio::net::TcpStream;

use super::{HttpClient, resolver::resolve};
use crate::{SourceError, addresses::RefusedAddress};

impl HttpClient {
    /// Connects to a host, without a proxy. The name is resolved once, and only allowed addresses are used. `url` is for
    /// messages.
    pub async fn connect_tcp(&self, url: &Url, host: &str, port: u16) -> Result<TcpStream, SourceError> {
        let failed = |reason: String| SourceError::RequestFailed { url: url.to_string(), reason };
        let addresses = resolve(&self.policy, host, port).await.map_err(|error| {
            match error.downcast_ref::<RefusedAddress>() {
                Some(refused) => {
                    SourceError::AddressRefused { url: url.to_string(), refused: refused.clone() }
                }
                None => failed(error.to_string()),
            }
        })?;
        let stream = TcpStream::connect(&*addresses).await.map_err(|error| failed(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        Ok(stream)
    }
}
