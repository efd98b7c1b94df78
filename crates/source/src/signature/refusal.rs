/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it is not signed; sign it with `cosign sign` and the digest of its manifest")]
    NoSignature,
    #[error("its signature cannot be read: {0}; sign it anew")]
    Unreadable(String),
    #[error("its signature is for other content; sign it anew")]
    OtherContent,
    #[error("none of the given keys made its signature; sign it with one of them, or give the key that did")]
    OtherKey,
    #[error("it is signed with a key, but only who the certificate names is trusted; sign it without a key")]
    NoCertificate,
    #[error("the certificate of its signature is not trusted ({0}); check the trusted root")]
    UntrustedCertificate(String),
    #[error(
        "its signature is not in a transparency log that the trusted root knows ({0}); sign it with a log"
    )]
    NotLogged(String),
    #[error("it was signed by {subject}, as {issuer} says; nobody trusts that identity for this source")]
    OtherIdentity { subject: String, issuer: String },
}

impl Refusal {
    /// The one of two that tells more: what got further in the checks.
    #[must_use]
    pub fn or_closer(self, other: Self) -> Self {
        if other.progress() > self.progress() { other } else { self }
    }

    fn progress(&self) -> u8 {
        match self {
            Self::NoSignature => 0,
            Self::Unreadable(_) => 1,
            Self::OtherContent => 2,
            Self::NoCertificate => 3,
            Self::OtherKey => 4,
            Self::UntrustedCertificate(_) => 5,
            Self::NotLogged(_) => 6,
            Self::OtherIdentity { .. } => 7,
        }
    }
}
