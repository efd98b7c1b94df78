//! Verification of server certificates by webpki, with a rule of one's own for the certificate of the server.

use std::{fmt, sync::Arc};

use rustls::{
    DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Whether a certificate is accepted.
pub type Verdict = Result<ServerCertVerified, Error>;

/// The certificate of a server, and what it has to be valid for.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    pub certificate: &'a CertificateDer<'a>,
    pub server_name: &'a ServerName<'a>,
    pub now: UnixTime,
}

/// A rule for the certificate of a server.
pub trait CertificateRule: fmt::Debug + Send + Sync {
    /// Verifies a certificate. `by_chain` returns the verdict of webpki: issued by a trust anchor, valid now and for the name.
    fn verify(&self, presented: Presented<'_>, by_chain: impl FnOnce() -> Verdict) -> Verdict;
}

/// Verifies server certificates with a rule, and signatures as webpki does.
#[derive(Debug)]
pub struct RuleVerifier<R> {
    chains: Arc<WebPkiServerVerifier>,
    rule: R,
}

impl<R: CertificateRule> RuleVerifier<R> {
    /// Fails if there are no roots.
    pub fn with_rule(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
        rule: R,
    ) -> Result<Self, VerifierBuilderError> {
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { chains, rule })
    }
}

impl<R: CertificateRule> ServerCertVerifier for RuleVerifier<R> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Verdict {
        self.rule.verify(Presented { certificate: end_entity, server_name, now }, || {
            self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
