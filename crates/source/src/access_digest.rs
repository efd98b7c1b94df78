//! Identifies access to a source in the keys of caches.

use std::hash::{Hash as _, Hasher};

use sha2::{Digest as _, Sha256};

use crate::Access;

/// The SHA-256 digest of an [`Access`]. Unlike the access, a key of a cache may stay in memory for long, so it has no credentials
/// and is small.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AccessDigest([u8; 32]);

impl From<&Access> for AccessDigest {
    fn from(access: &Access) -> Self {
        let mut hasher = Sha256Hasher(Sha256::new());
        access.hash(&mut hasher);
        Self(hasher.0.finalize().into())
    }
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
    }
}
