//! Who has to have signed a package, and whether they did. What was found is handed in: nothing here asks anyone.

mod bundle;
mod certificate;
mod key;
mod keyless;
mod log;
mod policy;
mod refusal;
mod signers;
mod simple;
mod source_prefix;
mod trusted_root;

use chandler_core::digest::Digest;

pub(crate) use self::{bundle::Bundle, policy::Demand, simple::SimpleSignature};
pub use self::{
    key::BadKey,
    policy::{BadPolicy, BadRule, SignaturePolicy},
    refusal::Refusal,
    signers::{BadSigners, Signers, SignersSpec, WantedIdentity},
    source_prefix::BadSource,
    trusted_root::BadTrustedRoot,
};

/// A signature as it was found.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// As cosign 2 makes them: a layer and its annotations.
    Simple(SimpleSignature),
    /// As cosign 3 makes them.
    Bundle(Bundle),
}

/// Whether one of the signatures for the manifest is one that the signers made. If not, the refusal of the one that came
/// closest tells why.
pub(crate) fn judge(found: &[Found], manifest: &Digest, signers: &Signers) -> Result<(), Refusal> {
    let mut closest = Refusal::NoSignature;
    for signature in found {
        let judged = match signature {
            Found::Simple(signature) => signature.check(manifest, signers),
            Found::Bundle(bundle) => bundle.check(manifest, signers),
        };
        match judged {
            Ok(()) => return Ok(()),
            Err(refusal) => closest = closest.or_closer(refusal),
        }
    }
    Err(closest)
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
