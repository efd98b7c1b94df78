//! Signatures of people and machines without a key of their own: a certificate, valid for minutes, names them, and a log
//! tells that the signature was made in these minutes.

use chandler_core::digest::Digest;
use rustls_pki_types::CertificateDer;

use super::{
    Refusal, Signers, certificate,
    log::{LogEntry, Recorded},
};

/// What was signed, and how.
pub(super) struct Claim<'a> {
    pub message: &'a [u8],
    /// What the log has of it.
    pub logged: Digest,
    pub signature: &'a [u8],
    pub certificate: &'a CertificateDer<'a>,
    pub entries: &'a [LogEntry],
}

impl Claim<'_> {
    pub fn check(&self, signers: &Signers) -> Result<(), Refusal> {
        let Some(root) = &signers.trusted_root else { return Err(Refusal::OtherKey) };
        if !certificate::signed(self.certificate, self.message, self.signature) {
            return Err(Refusal::Unreadable("the certificate's key did not make it".to_owned()));
        }
        let recorded =
            Recorded { content: &self.logged, signature: self.signature, certificate: self.certificate };
        let mut time = Err(Refusal::NotLogged("it has no entry with a promise of the log".to_owned()));
        for entry in self.entries {
            time = entry.signed_at(&recorded, &root.logs);
            if time.is_ok() {
                break;
            }
        }
        certificate::check_chain(self.certificate, &root.authorities, time?)?;
        let identity = certificate::identity(self.certificate).ok_or_else(|| {
            Refusal::UntrustedCertificate("it does not name one person or machine and who says so".to_owned())
        })?;
        if signers.identities.iter().any(|wanted| wanted.is(&identity)) {
            return Ok(());
        }
        Err(Refusal::OtherIdentity { subject: identity.subject, issuer: identity.issuer })
    }
}
