//! The trusted signers of packages.

use std::hash::{Hash, Hasher};

use chandler_core::digest::Digest;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{
    certificate::Identity,
    key::{KeyError, PublicKey},
    trusted_root::{TrustedRoot, TrustedRootError},
};

/// The configuration of [`Signers`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SignersSpec {
    /// Public keys in PEM.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Identities for keyless signatures.
    #[serde(default)]
    pub identities: Vec<ExpectedIdentity>,
    /// The file that `cosign trusted-root create` writes. Required for identities.
    #[serde(default)]
    pub trusted_root: Option<String>,
}

/// The identity that a certificate must contain. Issuer and subject are given as exact texts, or as regular expressions that have
/// to match the whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExpectedIdentity {
    pub issuer: Option<String>,
    pub issuer_reg_exp: Option<String>,
    pub subject: Option<String>,
    pub subject_reg_exp: Option<String>,
}

/// A [`SignersSpec`] is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignersError {
    #[error("a public key is invalid: {0}")]
    Key(KeyError),
    #[error("the trusted root is invalid: {0}")]
    TrustedRoot(TrustedRootError),
    #[error("identities require trustedRoot: the file that `cosign trusted-root create` writes")]
    NoTrustedRoot,
    #[error("an identity requires exactly one of {0} and {0}RegExp")]
    Identity(&'static str),
    #[error("{0:?} is not a regular expression")]
    Expression(String),
    #[error("neither keys nor identities are set")]
    Empty,
}

/// The trusted signers of a package. A signature by one of them is enough. Two values are equal if their specs are equal.
#[derive(Clone, Debug)]
pub struct Signers {
    pub(super) keys: Vec<PublicKey>,
    pub(super) identities: Vec<IdentityMatcher>,
    /// Always set if there are identities.
    pub(super) trusted_root: Option<TrustedRoot>,
    digest: Digest,
}

impl Signers {
    pub fn new(spec: &SignersSpec) -> Result<Self, SignersError> {
        let SignersSpec { keys, identities, trusted_root } = spec;
        if keys.is_empty() && identities.is_empty() {
            return Err(SignersError::Empty);
        }
        let root = trusted_root.as_deref().map(TrustedRoot::parse).transpose();
        let trusted_root = root.map_err(SignersError::TrustedRoot)?;
        if trusted_root.is_none() && !identities.is_empty() {
            return Err(SignersError::NoTrustedRoot);
        }
        let keys: Result<Vec<_>, _> = keys.iter().map(|pem| PublicKey::from_pem(pem.as_bytes())).collect();
        let keys = keys.map_err(SignersError::Key)?.into_iter().flatten().collect();
        let identities: Result<Vec<_>, _> = identities.iter().map(IdentityMatcher::new).collect();
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

/// A validated [`ExpectedIdentity`].
#[derive(Clone, Debug)]
pub(super) struct IdentityMatcher {
    issuer: TextMatcher,
    subject: TextMatcher,
}

impl IdentityMatcher {
    fn new(expected: &ExpectedIdentity) -> Result<Self, SignersError> {
        let ExpectedIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp } = expected;
        Ok(Self {
            issuer: TextMatcher::new("issuer", issuer.as_deref(), issuer_reg_exp.as_deref())?,
            subject: TextMatcher::new("subject", subject.as_deref(), subject_reg_exp.as_deref())?,
        })
    }

    pub fn matches(&self, identity: &Identity) -> bool {
        self.issuer.matches(&identity.issuer) && self.subject.matches(&identity.subject)
    }
}

#[derive(Clone, Debug)]
enum TextMatcher {
    Exact(String),
    Pattern(Regex),
}

impl TextMatcher {
    fn new(name: &'static str, exact: Option<&str>, pattern: Option<&str>) -> Result<Self, SignersError> {
        match (exact, pattern) {
            (Some(exact), None) => Ok(Self::Exact(exact.to_owned())),
            // The pattern has to match the whole text, because a prefix of a URL may belong to another owner. It is first compiled
            // without the group, which could make an invalid expression valid.
            (None, Some(pattern)) => Regex::new(pattern)
                .and_then(|_| Regex::new(&format!("^(?:{pattern})$")))
                .map(Self::Pattern)
                .map_err(|_| SignersError::Expression(pattern.to_owned())),
            _ => Err(SignersError::Identity(name)),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Pattern(pattern) => pattern.is_match(text),
        }
    }
}
