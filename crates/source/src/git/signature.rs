//! Signatures of commits and tags by SSH keys.

use chandler_core::digest::Digest;
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, SshSig};

/// The namespace of signatures that Git makes.
const NAMESPACE: &str = "git";
/// The only option of a key that is supported: it is the default.
const GIT_ONLY: &str = "namespaces=\"git\"";
/// Options without a value. A key for another purpose is never taken for one that may sign commits.
const FLAGS: [&str; 2] = ["cert-authority", "restrict"];
/// The beginnings of the names of key types.
const KEY_TYPES: [&str; 4] = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];

/// The keys whose signatures a Source accepts.
#[derive(Clone, Debug)]
pub struct GitKeys {
    keys: Vec<PublicKey>,
    digest: Digest,
}

/// A text with public keys is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitKeyError {
    #[error("line {0} is no SSH public key; write it like `ssh-ed25519 AAAA… name`")]
    Invalid(usize),
    #[error(
        "line {0} has a key of type {1}, which is not supported; use ed25519, or ecdsa with 256 or 384 bits"
    )]
    Unsupported(usize, String),
    #[error("line {0} has options other than namespaces=\"git\", which are not supported")]
    Options(usize),
    #[error("there is no key")]
    Empty,
}

/// A signature does not count. Each message follows the name of what was signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    #[error(
        "is signed with PGP or X.509, which is not supported; sign with an SSH key: `git config gpg.format ssh`"
    )]
    NotSsh,
    #[error("has an unreadable signature")]
    Unreadable,
    #[error("is signed by {0}, which is none of the keys of spec.git.verify.keys")]
    UnknownKey(String),
    #[error("has an invalid signature of {0}: it was changed after it was signed")]
    Invalid(String),
}

impl GitKeys {
    /// Parses texts in the format of `authorized_keys` or `allowed_signers`.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, GitKeyError> {
        let mut keys = Vec::new();
        for text in texts {
            for (index, line) in text.lines().enumerate() {
                keys.extend(parse_line(index + 1, line.trim())?);
            }
        }
        if keys.is_empty() {
            return Err(GitKeyError::Empty);
        }
        let fingerprints: Vec<_> = keys.iter().map(name).collect();
        Ok(Self { keys, digest: Digest::of(fingerprints.join("\n")) })
    }

    /// Returns a digest of the keys. What was verified with other keys has to be verified again.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the name of the key that made the signature.
    pub(super) fn signer(&self, signed: &[u8], signature: &[u8]) -> Result<String, SignatureError> {
        if !signature.starts_with(b"-----BEGIN SSH SIGNATURE-----") {
            return Err(SignatureError::NotSsh);
        }
        let signature = SshSig::from_pem(signature).map_err(|_| SignatureError::Unreadable)?;
        let made_by = signature.public_key();
        let key = self.keys.iter().find(|key| key.key_data() == made_by);
        let key =
            key.ok_or_else(|| SignatureError::UnknownKey(made_by.fingerprint(HashAlg::Sha256).to_string()))?;
        match key.verify(NAMESPACE, signed, &signature) {
            Ok(()) => Ok(name(key)),
            Err(_) => Err(SignatureError::Invalid(name(key))),
        }
    }
}

/// Returns the fingerprint of a key, and its comment if it has one.
fn name(key: &PublicKey) -> String {
    let fingerprint = key.fingerprint(HashAlg::Sha256);
    match key.comment() {
        "" => fingerprint.to_string(),
        comment => format!("{comment} ({fingerprint})"),
    }
}

/// Returns whether the word before a key is an option, not the names of users.
fn is_option(word: &str) -> bool {
    let flag = word.split(',').any(|one| FLAGS.contains(&one) || one.starts_with("no-"));
    flag || word.contains('=') || word.contains('"')
}

/// Parses a line: `[principals [options]] type key [comment]`. Returns `None` for empty lines and comments.
fn parse_line(number: usize, line: &str) -> Result<Option<PublicKey>, GitKeyError> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let words: Vec<_> = line.split_whitespace().collect();
    let is_type = |word: &&str| KEY_TYPES.iter().any(|prefix| word.starts_with(prefix));
    let at = words.iter().position(is_type).ok_or(GitKeyError::Invalid(number))?;
    let (before, rest) = words.split_at(at);
    let comment = match before {
        [] | [GIT_ONLY] => rest.get(2..).unwrap_or_default().join(" "),
        [principals] | [principals, GIT_ONLY] if !is_option(principals) => (*principals).to_owned(),
        _ => return Err(GitKeyError::Options(number)),
    };
    let key = rest.get(..2).ok_or(GitKeyError::Invalid(number))?.join(" ");
    let mut key = PublicKey::from_openssh(&key).map_err(|_| GitKeyError::Invalid(number))?;
    let is_supported = match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256 => true,
        Algorithm::Ecdsa { curve } => curve != EcdsaCurve::NistP521,
        _ => false,
    };
    if !is_supported {
        return Err(GitKeyError::Unsupported(number, key.algorithm().to_string()));
    }
    key.set_comment(comment);
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    #[test]
    fn keys_are_read_in_both_formats() {
        let texts = [
            KEY.to_owned(),
            format!("{KEY} anna@example"),
            format!("# the team\n\nanna@example {KEY}\n"),
            format!("anna@example namespaces=\"git\" {KEY}"),
            format!("namespaces=\"git\" {KEY} anna@example"),
        ];
        for text in &texts {
            assert_eq!(GitKeys::parse([text.as_str()]).unwrap().keys.len(), 1, "{text}");
        }
        let named = GitKeys::parse([texts[3].as_str()]).unwrap();
        assert!(name(&named.keys[0]).starts_with("anna@example (SHA256:"));
        let two = GitKeys::parse([texts[0].as_str(), texts[1].as_str()]).unwrap();
        assert_eq!(two.keys.len(), 2);
        assert_ne!(two.digest(), named.digest());
    }

    #[test]
    fn other_texts_are_refused() {
        let rows = [
            ("", GitKeyError::Empty),
            ("-----BEGIN PGP PUBLIC KEY BLOCK-----", GitKeyError::Invalid(1)),
            ("\nssh-ed25519 nonsense", GitKeyError::Invalid(2)),
            ("anna cert-authority ssh-ed25519 AAAA", GitKeyError::Options(1)),
        ];
        for (text, expected) in rows {
            assert_eq!(GitKeys::parse([text]).unwrap_err(), expected, "{text}");
        }
        let options = [
            "cert-authority",
            "restrict,cert-authority",
            "no-pty",
            "namespaces=\"file\"",
            "valid-before=\"20200101\"",
            "anna namespaces=\"file\"",
            "cert-authority namespaces=\"git\"",
        ];
        for options in options {
            let refused = GitKeys::parse([&*format!("{options} {KEY}")]).unwrap_err();
            assert_eq!(refused, GitKeyError::Options(1), "{options}");
        }
    }

    #[test]
    fn a_signature_of_another_kind_is_named() {
        let keys = GitKeys::parse([KEY]).unwrap();
        let refused = |signature: &str| keys.signer(b"text", signature.as_bytes()).unwrap_err();
        assert_eq!(refused("-----BEGIN PGP SIGNATURE-----\n"), SignatureError::NotSsh);
        assert_eq!(refused("-----BEGIN SSH SIGNATURE-----\nno\n"), SignatureError::Unreadable);
    }
}
