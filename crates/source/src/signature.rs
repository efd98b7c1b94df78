//! The required signers of packages, and the verification of signatures. This module does not send requests.

mod bundle;
mod certificate;
mod error;
mod key;
mod keyless;
mod log;
mod policy;
mod signers;
mod simple;
mod source_prefix;
mod trusted_root;

use chandler_core::digest::Digest;

pub(crate) use self::{bundle::Bundle, policy::Requirement, simple::SimpleSignature};
pub use self::{
    error::VerificationError,
    key::KeyError,
    policy::{PolicyError, PolicyUnavailable, RuleError, SignaturePolicy},
    signers::{ExpectedIdentity, Signers, SignersError, SignersSpec},
    source_prefix::SourcePrefixError,
    trusted_root::TrustedRootError,
};

/// A signature as the registry contains it.
#[derive(Clone, Debug)]
pub(crate) enum Signature {
    /// The format of cosign 2: a layer and its annotations.
    Simple(SimpleSignature),
    /// The format of cosign 3.
    Bundle(Bundle),
}

/// Verifies that one of the signatures is for the manifest and made by one of the signers. Otherwise, returns the error of the
/// signature that passed most checks.
pub(crate) fn verify(
    signatures: &[Signature],
    manifest: &Digest,
    signers: &Signers,
) -> Result<(), VerificationError> {
    let mut most_specific = VerificationError::NoSignature;
    for signature in signatures {
        let result = match signature {
            Signature::Simple(signature) => signature.verify(manifest, signers),
            Signature::Bundle(bundle) => bundle.verify(manifest, signers),
        };
        match result {
            Ok(()) => return Ok(()),
            Err(error) => most_specific = most_specific.or_more_specific(error),
        }
    }
    Err(most_specific)
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
