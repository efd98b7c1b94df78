//! Certificates of signers.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{
    der_parser::asn1_rs::{FromDer as _, Oid, Utf8String, oid},
    extensions::GeneralName,
    prelude::X509Certificate,
};

use super::{VerificationError, key::ALGORITHMS, trusted_root::CertificateAuthority};

/// 1.3.6.1.5.5.7.3.3
const CODE_SIGNING: &[u8] = &[43, 6, 1, 5, 5, 7, 3, 3];

/// The identity of a signer: the subject, and the OIDC issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub issuer: String,
    pub subject: String,
}

/// Parses all certificates in a PEM text.
pub(super) fn from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, VerificationError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates.map_err(|_| VerificationError::Invalid("its certificate is not PEM".to_owned()))
}

/// Returns whether the signature of the message was made with the key of the certificate.
pub(super) fn verifies(certificate: &CertificateDer<'_>, message: &[u8], signature: &[u8]) -> bool {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return false };
    ALGORITHMS.iter().any(|algorithm| certificate.verify_signature(*algorithm, message, signature).is_ok())
}

/// Verifies that one of the authorities issued the certificate, and that it was valid at this time in seconds since 1970.
pub(super) fn verify_chain(
    certificate: &CertificateDer<'_>,
    authorities: &[CertificateAuthority],
    seconds: u64,
) -> Result<(), VerificationError> {
    let untrusted = |reason: &str| VerificationError::UntrustedCertificate(reason.to_owned());
    let leaf = EndEntityCert::try_from(certificate).map_err(|error| untrusted(&error.to_string()))?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let usage = KeyUsage::required(CODE_SIGNING);
    let mut reason = "no certificate authority was valid when it was signed".to_owned();
    for authority in authorities.iter().filter(|authority| authority.valid.contains(seconds)) {
        let Ok(anchor) = anchor_from_trusted_cert(&authority.root) else { continue };
        let anchors = [anchor];
        let path =
            leaf.verify_for_usage(ALGORITHMS, &anchors, &authority.intermediates, time, usage, None, None);
        match path {
            Ok(_) => return Ok(()),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(untrusted(&reason))
}

/// Returns the identity in the certificate.
pub(super) fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let [name] = names.value.general_names.as_slice() else { return None };
    let subject = match name {
        GeneralName::URI(text) | GeneralName::RFC822Name(text) | GeneralName::DNSName(text) => *text,
        _ => return None,
    };
    Some(Identity { issuer: issuer(&certificate)?, subject: subject.to_owned() })
}

/// Returns the OIDC issuer, which Fulcio writes into an X.509 extension. Older certificates contain it without DER encoding.
fn issuer(certificate: &X509Certificate<'_>) -> Option<String> {
    let value = |oid: Oid<'_>| {
        certificate.extensions().iter().find(|extension| extension.oid == oid).map(|found| found.value)
    };
    if let Some(encoded) = value(oid!(1.3.6.1.4.1.57264.1.8)) {
        let (_, text) = Utf8String::from_der(encoded).ok()?;
        return Some(text.string());
    }
    String::from_utf8(value(oid!(1.3.6.1.4.1.57264.1.1))?.to_vec()).ok()
}
