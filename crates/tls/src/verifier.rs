//! Verification of server certificates, with the rule of Go's `crypto/x509`: a server may use a trust anchor as its own
//! certificate, even if that is a certificate authority, as `openssl req -x509` creates it. webpki refuses those.

use std::{sync::Arc, time::Duration};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use x509_parser::parse_x509_certificate;

use crate::{
    TlsError,
    rule::{CertificateRule, Presented, RuleVerifier, Verdict},
};

/// Verifies that a certificate is a trust anchor or issued by one, valid now, and valid for the server's name.
pub type AnchorVerifier = RuleVerifier<Anchors>;

/// The certificates that a server may use although they are certificate authorities.
#[derive(Debug)]
pub struct Anchors {
    configured: Vec<CertificateDer<'static>>,
    system: &'static [CertificateDer<'static>],
}

impl AnchorVerifier {
    /// `roots` must contain the `configured` certificates and those of the `system`.
    pub fn new(
        roots: RootCertStore,
        configured: Vec<CertificateDer<'static>>,
        system: &'static [CertificateDer<'static>],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let anchors = Anchors { configured, system };
        Self::with_rule(roots, provider, anchors).map_err(|_| TlsError::Unusable)
    }
}

impl Anchors {
    fn contain(&self, certificate: &CertificateDer<'_>) -> bool {
        self.configured.iter().chain(self.system).any(|anchor| anchor.as_ref() == certificate.as_ref())
    }
}

impl CertificateRule for Anchors {
    fn verify(&self, presented: Presented<'_>, by_chain: impl FnOnce() -> Verdict) -> Verdict {
        let Presented { certificate, server_name, now } = presented;
        if self.contain(certificate) { verify_anchor(certificate, server_name, now) } else { by_chain() }
    }
}

/// Verifies a server certificate that is a trust anchor itself: its time, its purpose and its names.
fn verify_anchor(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let (from, until) = (parsed.validity().not_before, parsed.validity().not_after);
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let time =
        |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().unwrap_or(0)));
    if seconds < from.timestamp() {
        let not_before = time(from.timestamp());
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if seconds > until.timestamp() {
        return Err(CertificateError::ExpiredContext { time: now, not_after: time(until.timestamp()) }.into());
    }
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    Ok(ServerCertVerified::assertion())
}

/// Accepts every certificate.
#[derive(Debug)]
pub struct NoVerifier {
    schemes: Vec<SignatureScheme>,
}

impl NoVerifier {
    pub fn new(provider: &CryptoProvider) -> Self {
        Self { schemes: provider.signature_verification_algorithms.supported_schemes() }
    }
}

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

#[cfg(test)]
mod tests;
