//! Keyless signatures: a short-lived certificate contains the identity of the signer, and an entry of a transparency log proves
//! that the signature was made while the certificate was valid.

use chandler_core::digest::Digest;
use rustls_pki_types::CertificateDer;

use super::{
    Signers, VerificationError, certificate,
    log::{ExpectedEntry, LogEntry},
};

/// A keyless signature of a message.
pub(super) struct KeylessSignature<'a> {
    pub message: &'a [u8],
    /// The digest in the log entry.
    pub logged_digest: Digest,
    pub signature: &'a [u8],
    pub certificate: &'a CertificateDer<'a>,
    pub entries: &'a [LogEntry],
}

impl KeylessSignature<'_> {
    pub fn verify(&self, signers: &Signers) -> Result<(), VerificationError> {
        let Some(root) = &signers.trusted_root else { return Err(VerificationError::UntrustedKey) };
        if !certificate::verifies(self.certificate, self.message, self.signature) {
            return Err(VerificationError::Invalid(
                "it was not made with the key of its certificate".to_owned(),
            ));
        }
        let expected = ExpectedEntry {
            content: &self.logged_digest,
            signature: self.signature,
            certificate: self.certificate,
        };
        let mut time =
            Err(VerificationError::NotLogged("it has no log entry with an inclusion promise".to_owned()));
        for entry in self.entries {
            time = entry.signed_at(&expected, &root.logs);
            if time.is_ok() {
                break;
            }
        }
        certificate::verify_chain(self.certificate, &root.authorities, time?)?;
        let identity = certificate::identity(self.certificate).ok_or_else(|| {
            VerificationError::UntrustedCertificate(
                "it does not contain exactly one identity and its issuer".to_owned(),
            )
        })?;
        if signers.identities.iter().any(|expected| expected.matches(&identity)) {
            return Ok(());
        }
        Err(VerificationError::UntrustedIdentity { subject: identity.subject, issuer: identity.issuer })
    }
}
