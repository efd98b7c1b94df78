//! TLS of connections to servers that users configure: repositories, registries and API servers of workload clusters.

pub mod rule;
mod verifier;

use std::sync::{Arc, LazyLock};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _, SectionKind},
    },
};

use crate::verifier::{AnchorVerifier, NoVerifier};

/// The certificates that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The certificates of the operating system.
    System,
    /// These certificates, and those of the operating system.
    SystemAnd(Vec<CertificateDer<'static>>),
    /// Only these certificates.
    Only(Vec<CertificateDer<'static>>),
    /// Every certificate. The connection is not protected against a server that pretends to be another.
    Anything,
}

/// A certificate and its private key, with which the client identifies itself.
#[derive(Debug)]
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Why certificates cannot be used. The messages contain nothing of their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate authority contains no certificate in PEM, or one that cannot be read")]
    InvalidAuthority,
    #[error("the client certificate is not a certificate and its private key in PEM")]
    InvalidClientCertificate,
    #[error("this system has no certificate authorities; configure one")]
    NoSystemAuthorities,
    #[error("TLS cannot be configured with these certificates")]
    Unusable,
}

/// Reads all certificates of a PEM bundle.
pub fn certificates(bundle: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(bundle).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::InvalidAuthority),
    }
}

impl ClientCertificate {
    /// Reads a certificate chain and its private key.
    pub fn from_pem(text: &[u8]) -> Result<Self, TlsError> {
        let (mut chain, mut key, mut rest) = (Vec::new(), None, text);
        let read = |rest: &mut &[u8]| pem::from_buf(rest).map_err(|_| TlsError::InvalidClientCertificate);
        while let Some((kind, der)) = read(&mut rest)? {
            match kind {
                SectionKind::Certificate => chain.push(der.into()),
                SectionKind::PrivateKey => key = Some(PrivateKeyDer::Pkcs8(der.into())),
                SectionKind::RsaPrivateKey => key = Some(PrivateKeyDer::Pkcs1(der.into())),
                SectionKind::EcPrivateKey => key = Some(PrivateKeyDer::Sec1(der.into())),
                _ => {}
            }
        }
        match key {
            Some(key) if !chain.is_empty() => Ok(Self { chain, key }),
            _ => Err(TlsError::InvalidClientCertificate),
        }
    }
}

/// Returns the configuration of a client.
pub fn client_config(trust: Trust, identity: Option<ClientCertificate>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|_| TlsError::Unusable)?
        .dangerous();
    let builder = match trust {
        Trust::Anything => builder.with_custom_certificate_verifier(Arc::new(NoVerifier::new(&provider))),
        Trust::System => builder.with_custom_certificate_verifier(verifier(&[], true, provider)?),
        Trust::SystemAnd(extra) => {
            builder.with_custom_certificate_verifier(verifier(&extra, true, provider)?)
        }
        Trust::Only(anchors) => {
            builder.with_custom_certificate_verifier(verifier(&anchors, false, provider)?)
        }
    };
    match identity {
        Some(ClientCertificate { chain, key }) => {
            builder.with_client_auth_cert(chain, key).map_err(|_| TlsError::InvalidClientCertificate)
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// The certificates of the operating system, read once. Those that cannot be read are left out.
static SYSTEM: LazyLock<Vec<CertificateDer<'static>>> =
    LazyLock::new(|| rustls_native_certs::load_native_certs().certs);

fn verifier(
    configured: &[CertificateDer<'static>],
    with_system: bool,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<AnchorVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in configured {
        roots.add(certificate.clone()).map_err(|_| TlsError::InvalidAuthority)?;
    }
    let system: &'static [CertificateDer<'static>] = if with_system { &SYSTEM } else { &[] };
    roots.add_parsable_certificates(system.iter().cloned());
    if roots.is_empty() {
        return Err(TlsError::NoSystemAuthorities);
    }
    AnchorVerifier::new(roots, configured.to_vec(), system, provider).map(Arc::new)
}
