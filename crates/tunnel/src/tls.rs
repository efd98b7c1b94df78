//! TLS of the hub's public port, of agents and of peers: TLS 1.3 only, with the authority of the installation as the only
//! trust anchor, and without resumption, because a resumed session is not checked against the lifetime of its certificate.

mod pinned;

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::TLS13,
};
use secrecy::{ExposeSecret as _, SecretString};

pub use self::pinned::UntrustedIssuer;
use self::pinned::{NameIssuer, PinnedVerifier};
use crate::{
    authority::{AuthorityError, CertificateAndKey, CertificateFacts},
    keys::{TunnelKeys, host_of},
};

/// Why TLS cannot be configured. The messages contain nothing of the keys.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the CA bundle contains no certificate in PEM, or one that cannot be read")]
    InvalidAuthority,
    #[error("the certificate and its private key cannot be used")]
    InvalidCertificate,
    #[error("{address:?} is not HOST:PORT with a DNS name or an IP address")]
    InvalidAddress { address: String },
    #[error("TLS cannot be configured: {0}")]
    Unusable(#[source] rustls::Error),
}

/// What a connection is for, negotiated in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with one request to the join endpoint.
    Join,
    /// HTTP/2 with reversed roles, between hub and agent.
    Tunnel,
    /// HTTP/2 between two hubs.
    Peer,
}

impl Protocol {
    /// Returns the name in the handshake.
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Join => b"chandler-join/1",
            Self::Tunnel => b"chandler-tunnel/1",
            Self::Peer => b"chandler-peer/1",
        }
    }

    /// Returns the negotiated protocol, or `None` if the client offered none: such a connection must be closed.
    ///
    /// A client that offers only other protocols does not complete the handshake.
    pub fn negotiated(alpn: Option<&[u8]>) -> Option<Self> {
        [Self::Join, Self::Tunnel, Self::Peer].into_iter().find(|protocol| alpn == Some(protocol.alpn()))
    }
}

/// Returns the configuration of the hub's public port: `Join` or `Tunnel`, with an optional client certificate.
///
/// `Tunnel` without a client certificate must be closed after the handshake, see [`peer_certificate`].
pub fn public_server_config(keys: &TunnelKeys) -> Result<ServerConfig, TlsError> {
    server_config(keys, true, &[Protocol::Tunnel, Protocol::Join])
}

/// Returns the configuration of a hub's port for its peers. The client certificate is mandatory, and the hub must verify
/// with [`CertificateFacts::is_hub_of`] that it does not belong to an agent.
pub fn peer_server_config(keys: &TunnelKeys) -> Result<ServerConfig, TlsError> {
    server_config(keys, false, &[Protocol::Peer])
}

/// Returns the configuration with which a hub connects to its peers.
pub fn peer_client_config(keys: &TunnelKeys) -> Result<ClientConfig, TlsError> {
    client_config(keys.ca_bundle(), Some(&keys.hub), Protocol::Peer)
}

/// Returns the configuration with which an agent joins (`Protocol::Join`, with a certificate to renew it) or opens a tunnel
/// (`Protocol::Tunnel`, with a certificate). It trusts only the CA bundle of the hub.
pub fn agent_client_config(
    ca_bundle: &str,
    certificate: Option<&CertificateAndKey>,
    protocol: Protocol,
) -> Result<ClientConfig, TlsError> {
    client_config(ca_bundle, certificate, protocol)
}

/// Returns the name that a client verifies when it connects to `HOST:PORT`.
pub fn server_name(address: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host_of(address).to_owned())
        .map_err(|_| TlsError::InvalidAddress { address: address.to_owned() })
}

/// Reads the certificate that the other side has presented, or returns `None` if it has presented none.
pub fn peer_certificate(
    certificates: Option<&[CertificateDer<'_>]>,
) -> Result<Option<CertificateFacts>, AuthorityError> {
    certificates.and_then(<[_]>::first).map(CertificateFacts::read).transpose()
}

/// Describes an error of a handshake for a person.
pub fn describe_handshake_error(error: &io::Error) -> String {
    UntrustedIssuer::find(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn server_config(
    keys: &TunnelKeys,
    optional_client: bool,
    protocols: &[Protocol],
) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(keys.ca_bundle())?.into(), provider.clone());
    let verifier = if optional_client { verifier.allow_unauthenticated() } else { verifier };
    let verifier = verifier.build().map_err(|_| TlsError::InvalidAuthority)?;
    let (chain, key) = chain_and_key(&keys.hub.certificate, &keys.hub.key)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|_| TlsError::InvalidCertificate)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.alpn().to_vec()).collect();
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

fn client_config(
    ca_bundle: &str,
    certificate: Option<&CertificateAndKey>,
    protocol: Protocol,
) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = PinnedVerifier::with_rule(roots(ca_bundle)?, provider.clone(), NameIssuer)
        .map_err(|_| TlsError::InvalidAuthority)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match certificate {
        Some(CertificateAndKey { certificate, key }) => {
            let (chain, key) = chain_and_key(certificate, key)?;
            builder.with_client_auth_cert(chain, key).map_err(|_| TlsError::InvalidCertificate)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(ca_bundle: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_bundle.as_bytes()) {
        let certificate = certificate.map_err(|_| TlsError::InvalidAuthority)?;
        roots.add(certificate).map_err(|_| TlsError::InvalidAuthority)?;
    }
    if roots.is_empty() { Err(TlsError::InvalidAuthority) } else { Ok(roots) }
}

fn chain_and_key(
    certificate: &str,
    key: &SecretString,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::InvalidCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
        .map_err(|_| TlsError::InvalidCertificate)?;
    if chain.is_empty() { Err(TlsError::InvalidCertificate) } else { Ok((chain, key)) }
}
