//! Certificates of signers: who they name, and who vouches for them.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{
    der_parser::asn1_rs::{FromDer as _, Oid, Utf8String, oid},
    extensions::GeneralName,
    prelude::X509Certificate,
};

use super::{Refusal, key::ALGORITHMS, trusted_root::Authority};

/// 1.3.6.1.5.5.7.3.3
const CODE_SIGNING: &[u8] = &[43, 6, 1, 5, 5, 7, 3, 3];

/// Who signed: the subject, and who has seen that it is them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub issuer: String,
    pub subject: String,
}

/// The certificates in a text.
pub(super) fn from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates.map_err(|_| Refusal::Unreadable("its certificate is not PEM".to_owned()))
}

/// Whether the key of the certificate signed the message.
pub(super) fn signed(certificate: &CertificateDer<'_>, message: &[u8], signature: &[u8]) -> bool {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return false };
    ALGORITHMS.iter().any(|algorithm| certificate.verify_signature(*algorithm, message, signature).is_ok())
}

/// Whether one of the authorities vouched for the certificate at a time, in seconds since 1970.
pub(super) fn check_chain(
    certificate: &CertificateDer<'_>,
    authorities: &[Authority],
    seconds: u64,
) -> Result<(), Refusal> {
    let untrusted = |why: &str| Refusal::UntrustedCertificate(why.to_owned());
    let leaf = EndEntityCert::try_from(certificate).map_err(|error| untrusted(&error.to_string()))?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let usage = KeyUsage::required(CODE_SIGNING);
    let mut why = "no certificate authority was valid when it was signed".to_owned();
    for authority in authorities.iter().filter(|authority| authority.valid.contains(seconds)) {
        let Ok(anchor) = anchor_from_trusted_cert(&authority.root) else { continue };
        let anchors = [anchor];
        let path =
            leaf.verify_for_usage(ALGORITHMS, &anchors, &authority.intermediates, time, usage, None, None);
        match path {
            Ok(_) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(untrusted(&why))
}

/// Whom the certificate names.
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

/// Fulcio writes the issuer into an extension of its own; older certificates have it without an encoding.
fn issuer(certificate: &X509Certificate<'_>) -> Option<String> {
    let value = |wanted: Oid<'_>| {
        certificate.extensions().iter().find(|extension| extension.oid == wanted).map(|found| found.value)
    };
    if let Some(encoded) = value(oid!(1.3.6.1.4.1.57264.1.8)) {
        let (_, text) = Utf8String::from_der(encoded).ok()?;
        return Some(text.string());
    }
    String::from_utf8(value(oid!(1.3.6.1.4.1.57264.1.1))?.to_vec()).ok()
}
