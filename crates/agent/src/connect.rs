//! TLS connections to a hub, which trust only the authority that the hub's entry in the configuration pins.

use std::{sync::Arc, time::Duration};

use chandler_tunnel::{
    HubEndpoint,
    authority::CertificateAndKey,
    tls::{Protocol, TlsError, agent_client_config, describe_handshake_error, server_name},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::dial::{DialError, HttpProxy, dial};

const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// The hub waits as long.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Why there is no TLS connection to a hub.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the hub {0} cannot be used: {1}")]
    Configuration(String, TlsError),
    #[error("no TLS connection to the hub {0}: {1}")]
    Handshake(String, String),
    #[error("the hub {0} did not complete the TLS handshake within {limit} s", limit = HANDSHAKE_LIMIT.as_secs())]
    HandshakeTimeout(String),
}

/// Connects to a hub with the certificate of the agent, if it has one.
pub async fn connect(
    hub: &HubEndpoint,
    proxy: Option<&HttpProxy>,
    certificate: Option<&CertificateAndKey>,
    protocol: Protocol,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let unusable = |error| ConnectError::Configuration(hub.address.clone(), error);
    let name = server_name(&hub.address).map_err(unusable)?;
    let config = agent_client_config(&hub.ca_bundle, certificate, protocol).map_err(unusable)?;
    let stream = dial(&hub.address, proxy, DIAL_LIMIT).await?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    match timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(ConnectError::Handshake(hub.address.clone(), describe_handshake_error(&error))),
        Err(_) => Err(ConnectError::HandshakeTimeout(hub.address.clone())),
    }
}
