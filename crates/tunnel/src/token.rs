//! Join tokens: with one, an agent gets its first certificate.

use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;

use crate::{
    identity::{TunnelId, TunnelKey, TunnelOwner},
    signing::{Purpose, SigningKey},
};

/// How long a token is valid.
pub const TOKEN_LIFETIME: Duration = Duration::from_hours(24);
/// The age at which Chandler replaces a token.
pub const TOKEN_REFRESH: Duration = Duration::from_hours(12);

const VERSION: &str = "v1";

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the text is not a join token")]
    Malformed,
    #[error("the join token has an invalid signature; it belongs to another installation or was changed")]
    InvalidSignature,
    #[error("the join token has expired; get the current one from the Secret of the tunnel")]
    Expired,
}

/// What a join token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinToken {
    pub tunnel: TunnelId,
    /// The Cluster whose tunnel it is: the token is useless to another Cluster's with the same id.
    pub owner: TunnelOwner,
    pub epoch: u32,
    /// In whole seconds.
    pub expires: Timestamp,
}

impl JoinToken {
    pub fn key(&self) -> TunnelKey {
        TunnelKey { id: self.tunnel, owner: self.owner }
    }

    /// Returns the signed token: `v1.<tunnel id>.<owner>.<epoch>.<expiry>.<signature>`.
    pub fn sign(&self, key: &SigningKey) -> SecretString {
        let payload = self.payload();
        let signature = key.sign(Purpose::Join, &payload);
        format!("{payload}.{signature}").into()
    }

    /// Verifies the signature, then the expiry.
    pub fn verify(text: &str, key: &SigningKey, now: Timestamp) -> Result<Self, TokenError> {
        let (token, payload, signature) = Self::parse(text)?;
        if !key.verify(Purpose::Join, payload, signature) {
            return Err(TokenError::InvalidSignature);
        }
        if now >= token.expires { Err(TokenError::Expired) } else { Ok(token) }
    }

    /// Returns whether a stored token is kept: it is younger than [`TOKEN_REFRESH`], so that a node that is created now can
    /// use it for a while.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        let left = Duration::try_from(self.expires.duration_since(now)).unwrap_or_default();
        left >= TOKEN_LIFETIME.saturating_sub(TOKEN_REFRESH) && left <= TOKEN_LIFETIME
    }

    /// Reads a token without verifying its signature, for an agent, which compares the expiry of two tokens.
    pub fn read_unverified(text: &str) -> Result<Self, TokenError> {
        Self::parse(text).map(|(token, _, _)| token)
    }

    fn payload(&self) -> String {
        let Self { tunnel, owner, epoch, expires } = self;
        format!("{VERSION}.{tunnel}.{owner}.{epoch}.{}", expires.as_second())
    }

    fn parse(text: &str) -> Result<(Self, &str, &str), TokenError> {
        let (payload, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let parts: Vec<_> = payload.split('.').collect();
        let [VERSION, tunnel, owner, epoch, expires] = parts[..] else {
            return Err(TokenError::Malformed);
        };
        let seconds = expires.parse().map_err(|_| TokenError::Malformed)?;
        let token = Self {
            tunnel: tunnel.parse().map_err(|_| TokenError::Malformed)?,
            owner: owner.parse().map_err(|_| TokenError::Malformed)?,
            epoch: epoch.parse().map_err(|_| TokenError::Malformed)?,
            expires: Timestamp::from_second(seconds).map_err(|_| TokenError::Malformed)?,
        };
        if token.payload() == payload { Ok((token, payload, signature)) } else { Err(TokenError::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn token() -> JoinToken {
        let (tunnel, owner) = (TunnelId::random().unwrap(), TunnelOwner::of("fleet", "blue"));
        JoinToken { tunnel, owner, epoch: 3, expires: at(2_000_000_000) }
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let (key, token) = (SigningKey::generate().unwrap(), token());
        let signed = token.sign(&key);
        let text = signed.expose_secret();
        assert_eq!(JoinToken::verify(text, &key, at(1_999_999_999)), Ok(token));
        assert_eq!(JoinToken::verify(text, &key, at(2_000_000_000)), Err(TokenError::Expired));
        assert_eq!(JoinToken::read_unverified(text), Ok(token));
        let another = SigningKey::generate().unwrap();
        assert_eq!(JoinToken::verify(text, &another, at(0)), Err(TokenError::InvalidSignature));
    }

    #[test]
    fn a_token_is_fresh_for_half_of_its_life() {
        let token = token();
        // Hours until it expires.
        for (hours, expected) in
            [(24, true), (13, true), (12, true), (11, false), (0, false), (-1, false), (25, false)]
        {
            assert_eq!(token.is_fresh(at(2_000_000_000 - hours * 3600)), expected, "{hours}");
        }
    }

    #[test]
    fn no_part_of_a_token_can_be_changed() {
        let (key, token) = (SigningKey::generate().unwrap(), token());
        let signed = token.sign(&key);
        let text = signed.expose_secret();
        let other = TunnelId::random().unwrap().to_string();
        for changed in [
            text.replace(&token.tunnel.to_string(), &other),
            text.replace(&token.owner.to_string(), &TunnelOwner::of("other", "blue").to_string()),
            text.replace(".3.", ".4."),
            text.replace("2000000000", "2000000001"),
        ] {
            assert_ne!(changed, text);
            assert_eq!(JoinToken::verify(&changed, &key, at(0)), Err(TokenError::InvalidSignature));
        }
        for malformed in [
            String::new(),
            "v1".to_owned(),
            text.replace("v1.", "v2."),
            text.replace(".3.", ".03."),
            text.replace(".3.", ".+3."),
            text.replace(&format!(".{}.", token.owner), "."),
            format!("{text}.x"),
            "v1.....".to_owned(),
        ] {
            assert_eq!(JoinToken::verify(&malformed, &key, at(0)), Err(TokenError::Malformed), "{malformed}");
        }
    }
}
