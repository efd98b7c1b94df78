//! The key with which Chandler signs join tokens and proxy passwords.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac::{self, HMAC_SHA256};
use secrecy::{ExposeSecret as _, SecretString};

use crate::random::{RandomError, from_hex, random_bytes, to_hex};

/// Separates the purposes of the key: a signature for one purpose is never valid for another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Join,
    Proxy,
}

/// The text is not a signing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signing key must have 64 hexadecimal digits in lowercase")]
pub struct InvalidSigningKey;

/// A random key of 32 bytes, from which the keys of each purpose are derived.
#[derive(Clone)]
pub struct SigningKey {
    hex: SecretString,
    join: hmac::Key,
    proxy: hmac::Key,
}

impl SigningKey {
    pub fn generate() -> Result<Self, RandomError> {
        Ok(Self::new(random_bytes()?))
    }

    pub fn from_hex(text: &str) -> Result<Self, InvalidSigningKey> {
        from_hex(text).map(Self::new).ok_or(InvalidSigningKey)
    }

    /// Returns the key as it is stored.
    pub fn to_hex(&self) -> SecretString {
        SecretString::from(self.hex.expose_secret())
    }

    fn new(bytes: [u8; 32]) -> Self {
        let root = hmac::Key::new(HMAC_SHA256, &bytes);
        let derive = |label: &str| hmac::Key::new(HMAC_SHA256, hmac::sign(&root, label.as_bytes()).as_ref());
        Self { hex: to_hex(&bytes).into(), join: derive("join"), proxy: derive("proxy") }
    }

    fn key(&self, purpose: Purpose) -> &hmac::Key {
        match purpose {
            Purpose::Join => &self.join,
            Purpose::Proxy => &self.proxy,
        }
    }

    /// Signs a message; the result contains only unreserved characters of URLs.
    pub(crate) fn sign(&self, purpose: Purpose, message: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(self.key(purpose), message.as_bytes()))
    }

    /// Verifies a signature in constant time.
    pub(crate) fn verify(&self, purpose: Purpose, message: &str, signature: &str) -> bool {
        URL_SAFE_NO_PAD
            .decode(signature)
            .is_ok_and(|tag| hmac::verify(self.key(purpose), message.as_bytes(), &tag).is_ok())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_valid_for_one_key_purpose_and_message() {
        let key = SigningKey::generate().unwrap();
        let signature = key.sign(Purpose::Join, "message");
        assert!(key.verify(Purpose::Join, "message", &signature));
        assert!(!key.verify(Purpose::Proxy, "message", &signature));
        assert!(!key.verify(Purpose::Join, "another", &signature));
        assert!(!SigningKey::generate().unwrap().verify(Purpose::Join, "message", &signature));
        for wrong in ["", &signature[1..], &format!("{signature}="), "***"] {
            assert!(!key.verify(Purpose::Join, "message", wrong), "{wrong}");
        }
    }

    #[test]
    fn a_stored_key_signs_as_before_and_is_not_printed() {
        let key = SigningKey::generate().unwrap();
        let hex = key.to_hex();
        let stored = SigningKey::from_hex(hex.expose_secret()).unwrap();
        assert!(stored.verify(Purpose::Proxy, "message", &key.sign(Purpose::Proxy, "message")));
        assert!(!format!("{key:?}").contains(hex.expose_secret()));
        assert!(SigningKey::from_hex("00").is_err());
    }
}
