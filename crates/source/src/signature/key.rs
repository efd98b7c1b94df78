//! Public keys of all types that `cosign` supports.

use rustls_pki_types::{
    SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    pem::{PemObject as _, SectionKind},
};
use webpki::{Error, RawPublicKeyEntity, ring};

/// The supported signature algorithms. The key and the signature determine which one is used.
pub(super) const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    ring::ECDSA_P256_SHA256,
    ring::ECDSA_P256_SHA384,
    ring::ECDSA_P384_SHA256,
    ring::ECDSA_P384_SHA384,
    ring::ED25519,
    ring::RSA_PKCS1_2048_8192_SHA256,
    ring::RSA_PKCS1_2048_8192_SHA384,
    ring::RSA_PKCS1_2048_8192_SHA512,
];

/// A public key is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it contains something other than public keys")]
    NotAKey,
    #[error("it is not PEM: {0}")]
    NotPem(String),
    #[error("it contains no public key in PEM")]
    Empty,
    #[error("it contains a key that is neither ECDSA P-256 or P-384, nor Ed25519, nor RSA")]
    UnsupportedType,
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicKey(SubjectPublicKeyInfoDer<'static>);

impl PublicKey {
    /// Parses all keys in a PEM text.
    pub fn from_pem(pem: &[u8]) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            match section {
                Ok((SectionKind::PublicKey, der)) => keys.push(Self::from_der(der)?),
                Ok(_) => return Err(KeyError::NotAKey),
                Err(error) => return Err(KeyError::NotPem(error.to_string())),
            }
        }
        if keys.is_empty() { Err(KeyError::Empty) } else { Ok(keys) }
    }

    pub fn from_der(der: Vec<u8>) -> Result<Self, KeyError> {
        let key = Self(SubjectPublicKeyInfoDer::from(der));
        if key.is_supported() {
            return Ok(key);
        }
        Err(KeyError::UnsupportedType)
    }

    /// Returns whether the signature of the message was made with this key.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(key) = RawPublicKeyEntity::try_from(&self.0) else { return false };
        ALGORITHMS.iter().any(|algorithm| key.verify_signature(*algorithm, message, signature).is_ok())
    }

    fn is_supported(&self) -> bool {
        let Ok(key) = RawPublicKeyEntity::try_from(&self.0) else { return false };
        let matches_key = |algorithm: &&dyn SignatureVerificationAlgorithm| {
            matches!(key.verify_signature(*algorithm, b"", b""), Err(Error::InvalidSignatureForPublicKey))
        };
        ALGORITHMS.iter().any(matches_key)
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

    use super::*;

    const RSA: &str = "\
-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwMPNP++q/qS3dFQqbWH4
c9+8LD7+qYiP5LzcnqdvNhv4Mx8+7JYDTTEQTum5CUlNh6JIha1sP+3kCZCDxie1
vB+5IgxHB/7DWpmQ1vivBqlyQ0CFkW4I2EnjGGDen75WY6C9tcMZ587mitqUc2SV
5wQLFh4jmuHTS+yTlL7PgS8FgW/g24kFFGAKU7zKZ6Z4/E/gPLo6rpg1jQlWgSoO
UqG7WWY5lYSGejARtWqKgyjXOeQNJsGsztOSF0suIBAvdHgEzttX0+exOhTd1Xay
KqGETyuOhvvO6Bnt0ALFik0mW0Bh3a187qmEuvcEBSyNmL5Aa9UCyb/wDayqpR1f
rwIDAQAB
-----END PUBLIC KEY-----
";
    /// The signature of `hello` by the RSA key, from `openssl dgst -sha256 -sign`.
    const RSA_SIGNATURE: &str = "Yl3/YYqKonRAfnoAc2b3lu9um7mdQ0t1UzFVqdBGP/QHIqMbiOWTxynin2FeMVz7Vz437esF9pBrgWB2nX41Jja9K2\
        cLFmbSYDTFqVZDkBtstY7DVEqZnklFKtvBmsojvlhxmVHREYXkNm2HjQScNMWeUWP9UDJQ43eR6we4eI6XJvNi1yIU\
        P3uHmMwXMWFy1zoNn4hKBRMo8BmfKa+3GzT99Pc+scjGmMfn+94INDNvy++oS81B8BwdTGthlvToLD9LLVauw4C4D8\
        KMgwYomrMwizxI4Unga0UX+zO5WBPCgn9w3tBYGcUSY1UAfdAQAJtIJAa/OwTF9DA2G2Q1Rg==";
    const P521: &str = "\
-----BEGIN PUBLIC KEY-----
MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQAyFxjTrajDEYq0JdLg/lxu5acIV36
zOL2C4JRZrahyVrGgjIWJ4pDYXz6jm7pfywc1WQMzJL/NolDTCswo3zR7asAqi0n
plxSrkJR+SG8HeuUrDGgPS4wM1gI6+vRkvfDkB/drQ+Bg/FsEBsCGP00LLhyntf1
IQKSt+ZX42f6dI/j7dg=
-----END PUBLIC KEY-----
";

    #[test]
    fn all_key_types_of_cosign_are_supported() {
        for kind in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
            let pair = KeyPair::generate_for(kind).unwrap();
            let pem = pair.public_key_pem();
            let [key] = PublicKey::from_pem(pem.as_bytes()).unwrap().try_into().unwrap();
            let signature = pair.sign(b"hello").unwrap();
            assert!(key.verifies(b"hello", &signature), "{kind:?}");
            assert!(!key.verifies(b"other", &signature), "{kind:?}");
            assert_eq!(PublicKey::from_der(pair.subject_public_key_info()), Ok(key));
        }
        let rsa = PublicKey::from_pem(RSA.as_bytes()).unwrap();
        let signature = BASE64_STANDARD.decode(RSA_SIGNATURE).unwrap();
        assert!(rsa[0].verifies(b"hello", &signature) && !rsa[0].verifies(b"other", &signature));
    }

    #[test]
    fn invalid_keys_are_rejected() {
        let two = format!("{RSA}{}", KeyPair::generate().unwrap().public_key_pem());
        assert_eq!(PublicKey::from_pem(two.as_bytes()).unwrap().len(), 2);
        let private = KeyPair::generate().unwrap().serialize_pem();
        let rows = [
            ("", "no public key"),
            ("nonsense", "no public key"),
            (P521, "neither ECDSA P-256"),
            (private.as_str(), "something other than"),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "neither ECDSA P-256"),
        ];
        for (pem, text) in rows {
            let error = PublicKey::from_pem(pem.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
