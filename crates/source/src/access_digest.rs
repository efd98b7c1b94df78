//! Identifies access to a source in the keys of caches.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use sha2::{Digest as _, Sha256};

use crate::{Access, Credentials};

/// The SHA-256 digest of an [`Access`], except for its namespace. Unlike the access, a key of a cache may stay in memory for long, so it has no credentials
/// and is small.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AccessDigest([u8; 32]);

impl fmt::Debug for AccessDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessDigest").finish_non_exhaustive()
    }
}

impl From<&Access> for AccessDigest {
    fn from(access: &Access) -> Self {
        let Access { namespace: _, ca_pem, insecure_skip_tls_verify, credentials, signers } = access;
        digest_of(&(ca_pem, insecure_skip_tls_verify, credentials, signers))
    }
}

impl From<Option<&Credentials>> for AccessDigest {
    /// Returns the digest of the credentials alone. `None` means that there are none.
    fn from(credentials: Option<&Credentials>) -> Self {
        digest_of(&credentials)
    }
}

fn digest_of(value: &impl Hash) -> AccessDigest {
    let mut hasher = Sha256Hasher(Sha256::new());
    value.hash(&mut hasher);
    AccessDigest(hasher.0.finalize().into())
}

/// Computes the SHA-256 digest of what implementations of `Hash` write. They write the lengths of lists and the ends of texts, so
/// that different values do not write the same bytes.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Credentials;

    fn access(data: &[(&str, &str)]) -> Access {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let credentials = Credentials::from_secret(data, "config.json").unwrap();
        Access { credentials: Some(credentials), ..Access::default() }
    }

    #[test]
    fn every_part_of_an_access_is_in_its_digest() {
        let different = [
            Access::default(),
            Access { ca_pem: Some(Vec::new()), ..Access::default() },
            Access { ca_pem: Some(b"ca".to_vec()), ..Access::default() },
            Access { insecure_skip_tls_verify: true, ..Access::default() },
            access(&[("username", "a"), ("password", "bc")]),
            access(&[("username", "ab"), ("password", "c")]),
            access(&[("bearerToken", "abc")]),
            access(&[("config.json", "abc")]),
            access(&[("tls.crt", "a"), ("tls.key", "bc")]),
            access(&[("accessKey", "a"), ("secretKey", "bc")]),
            access(&[("identity", "abc"), ("known_hosts", "a")]),
            access(&[("identity", "abc"), ("known_hosts", "a"), ("password", "b")]),
        ];
        let digests: HashSet<_> = different.iter().map(AccessDigest::from).collect();
        assert_eq!(digests.len(), different.len());
        assert!(different.iter().all(|access| digests.contains(&AccessDigest::from(&access.clone()))));
        let elsewhere = Access { namespace: "other".to_owned(), ..Access::default() };
        assert!(
            AccessDigest::from(&elsewhere) == AccessDigest::from(&Access::default()),
            "namespaces share sources"
        );
    }
}
