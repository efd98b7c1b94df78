/// The signatures of a package do not meet the requirements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationError {
    #[error("it is not signed; sign it with `cosign sign` and the digest of its manifest")]
    NoSignature,
    #[error("its signature is invalid: {0}; sign it again")]
    Invalid(String),
    #[error("its signature is for other content; sign it again")]
    WrongContent,
    #[error("none of the given keys made its signature; sign it with one of them, or add the key that did")]
    UntrustedKey,
    #[error("it is signed with a key, but only identities of certificates are trusted; sign it keyless")]
    NoCertificate,
    #[error("the certificate of its signature is not trusted ({0}); check the trusted root")]
    UntrustedCertificate(String),
    #[error(
        "its signature is not in a transparency log of the trusted root ({0}); sign it with a transparency log"
    )]
    NotLogged(String),
    #[error("it was signed by {subject}, issued by {issuer}; that identity is not trusted for this source")]
    UntrustedIdentity { subject: String, issuer: String },
}

impl VerificationError {
    /// Returns the error of the signature that passed more checks.
    #[must_use]
    pub fn or_more_specific(self, other: Self) -> Self {
        if other.passed_checks() > self.passed_checks() { other } else { self }
    }

    fn passed_checks(&self) -> u8 {
        match self {
            Self::NoSignature => 0,
            Self::Invalid(_) => 1,
            Self::WrongContent => 2,
            Self::NoCertificate => 3,
            Self::UntrustedKey => 4,
            Self::UntrustedCertificate(_) => 5,
            Self::NotLogged(_) => 6,
            Self::UntrustedIdentity { .. } => 7,
        }
    }
}
