//! Verification of the hub's certificate against the pinned authority, with an error that names the issuer of another one.

use std::{io, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use x509_parser::parse_x509_certificate;

use super::TlsError;

/// The longest issuer that an error contains, in characters: the other side chooses it.
const MAX_ISSUER_CHARS: usize = 200;

/// The hub's certificate is not signed by the pinned authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the certificate of the hub was not signed by the pinned authority, but by {issuer:?}; \
     is there a firewall that inspects TLS, or does the address belong to another server?"
)]
pub struct UntrustedIssuer {
    pub issuer: String,
}

impl UntrustedIssuer {
    /// Returns the cause of a failed handshake, if it is this one.
    pub fn find(error: &io::Error) -> Option<&Self> {
        match error.get_ref()?.downcast_ref()? {
            Error::Other(OtherError(other)) => other.downcast_ref(),
            _ => None,
        }
    }
}

/// Verifies that a certificate was issued by the pinned authority.
#[derive(Debug)]
pub struct PinnedVerifier(Arc<WebPkiServerVerifier>);

impl PinnedVerifier {
    pub fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map(Self)
            .map_err(|_| TlsError::InvalidAuthority)
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now).map_err(
            |error| match error {
                Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                    Error::Other(OtherError(Arc::new(UntrustedIssuer { issuer: issuer(end_entity) })))
                }
                other => other,
            },
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn issuer(certificate: &CertificateDer<'_>) -> String {
    parse_x509_certificate(certificate).map_or_else(
        |_| "a certificate that cannot be read".to_owned(),
        |(_, parsed)| parsed.issuer().to_string().chars().take(MAX_ISSUER_CHARS).collect(),
    )
}
