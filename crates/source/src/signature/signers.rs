//! Who may have signed a package.

use std::hash::{Hash, Hasher};

use chandler_core::digest::Digest;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{
    certificate::Identity,
    key::{BadKey, PublicKey},
    trusted_root::{BadTrustedRoot, TrustedRoot},
};

/// Who may have signed, as it is written down. One of them is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SignersSpec {
    /// Public keys, PEM.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Whom a certificate has to name.
    #[serde(default)]
    pub identities: Vec<WantedIdentity>,
    /// What `cosign trusted-root create` wrote; needed for identities.
    #[serde(default)]
    pub trusted_root: Option<String>,
}

/// Whom a certificate has to name: each as it is, or as an expression that the whole text has to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WantedIdentity {
    pub issuer: Option<String>,
    pub issuer_reg_exp: Option<String>,
    pub subject: Option<String>,
    pub subject_reg_exp: Option<String>,
}

/// Why nobody can be held against it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSigners {
    #[error("a public key cannot be used: {0}")]
    Key(BadKey),
    #[error("the trusted root cannot be used: {0}")]
    TrustedRoot(BadTrustedRoot),
    #[error("identities need a trustedRoot: the file that `cosign trusted-root create` writes")]
    NoTrustedRoot,
    #[error("an identity needs one of {0} and {0}RegExp")]
    Identity(&'static str),
    #[error("{0:?} is no regular expression")]
    Expression(String),
    #[error("neither keys nor identities are given")]
    Nobody,
}

/// Who may have signed a package. Equal ones were written down equally.
#[derive(Clone, Debug)]
pub struct Signers {
    pub(super) keys: Vec<PublicKey>,
    pub(super) identities: Vec<Expected>,
    /// There where there are identities.
    pub(super) trusted_root: Option<TrustedRoot>,
    digest: Digest,
}

impl Signers {
    pub fn new(spec: &SignersSpec) -> Result<Self, BadSigners> {
        let SignersSpec { keys, identities, trusted_root } = spec;
        if keys.is_empty() && identities.is_empty() {
            return Err(BadSigners::Nobody);
        }
        let root = trusted_root.as_deref().map(TrustedRoot::parse).transpose();
        let trusted_root = root.map_err(BadSigners::TrustedRoot)?;
        if trusted_root.is_none() && !identities.is_empty() {
            return Err(BadSigners::NoTrustedRoot);
        }
        let keys: Result<Vec<_>, _> = keys.iter().map(|pem| PublicKey::from_pem(pem.as_bytes())).collect();
        let keys = keys.map_err(BadSigners::Key)?.into_iter().flatten().collect();
        let identities: Result<Vec<_>, _> = identities.iter().map(Expected::new).collect();
        let digest = Digest::of(serde_json::to_vec(spec).unwrap_or_default());
        Ok(Self { keys, identities: identities?, trusted_root, digest })
    }

    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl PartialEq for Signers {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Signers {}

impl Hash for Signers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// A [`WantedIdentity`] that can be held against a certificate.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    issuer: Text,
    subject: Text,
}

impl Expected {
    fn new(wanted: &WantedIdentity) -> Result<Self, BadSigners> {
        let WantedIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp } = wanted;
        Ok(Self {
            issuer: Text::new("issuer", issuer.as_deref(), issuer_reg_exp.as_deref())?,
            subject: Text::new("subject", subject.as_deref(), subject_reg_exp.as_deref())?,
        })
    }

    pub fn is(&self, identity: &Identity) -> bool {
        self.issuer.is(&identity.issuer) && self.subject.is(&identity.subject)
    }
}

#[derive(Clone, Debug)]
enum Text {
    Exact(String),
    Pattern(Regex),
}

impl Text {
    fn new(name: &'static str, exact: Option<&str>, pattern: Option<&str>) -> Result<Self, BadSigners> {
        match (exact, pattern) {
            (Some(exact), None) => Ok(Self::Exact(exact.to_owned())),
            // The whole text: half of an address is someone else's. What is no expression alone is none in brackets.
            (None, Some(pattern)) => Regex::new(pattern)
                .and_then(|_| Regex::new(&format!("^(?:{pattern})$")))
                .map(Self::Pattern)
                .map_err(|_| BadSigners::Expression(pattern.to_owned())),
            _ => Err(BadSigners::Identity(name)),
        }
    }

    fn is(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Pattern(pattern) => pattern.is_match(text),
        }
    }
}
