//! Verification of the hub's certificate against the pinned authority, with an error that names the issuer of another one.

use std::{io, sync::Arc};

use chandler_tls::rule::{CertificateRule, Presented, RuleVerifier, Verdict};
use rustls::{CertificateError, Error, OtherError, pki_types::CertificateDer};
use x509_parser::parse_x509_certificate;

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
pub type PinnedVerifier = RuleVerifier<NameIssuer>;

/// Names the issuer of a certificate of another authority.
#[derive(Debug)]
pub struct NameIssuer;

impl CertificateRule for NameIssuer {
    fn verify(&self, presented: Presented<'_>, by_chain: impl FnOnce() -> Verdict) -> Verdict {
        by_chain().map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                let issuer = issuer(presented.certificate);
                Error::Other(OtherError(Arc::new(UntrustedIssuer { issuer })))
            }
            other => other,
        })
    }
}

fn issuer(certificate: &CertificateDer<'_>) -> String {
    parse_x509_certificate(certificate).map_or_else(
        |_| "a certificate that cannot be read".to_owned(),
        |(_, parsed)| parsed.issuer().to_string().chars().take(MAX_ISSUER_CHARS).collect(),
    )
}
