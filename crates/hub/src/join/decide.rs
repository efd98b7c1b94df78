//! Decides whether an agent gets a certificate. Pure.

use chandler_tunnel::{
    CertificateFacts, Installation, JoinToken, SigningKey, TunnelId, TunnelIdentity, token::TokenError,
};
use http::StatusCode;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::directory::Directory;

/// What an agent presents.
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    pub token: Option<&'a SecretString>,
    /// The client certificate, whose signature and validity TLS has verified.
    pub certificate: Option<&'a CertificateFacts>,
}

/// The certificate that an agent gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub identity: TunnelIdentity,
    /// Whether a certificate proves the identity, and not a token.
    pub renewal: bool,
}

/// Why an agent gets no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error("the hub has not listed the ClusterTunnels yet; retry")]
    NotListed,
    #[error("neither a join token nor a client certificate")]
    NoProof,
    #[error("{0}")]
    Token(TokenError),
    #[error("the client certificate is not one of an agent of this installation")]
    ForeignCertificate,
    #[error("the tunnel does not exist")]
    UnknownTunnel(TunnelId),
    #[error("epoch {presented} of the tunnel was revoked; read the Secret of the tunnel again")]
    Revoked { tunnel: TunnelId, presented: u32 },
}

impl JoinError {
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotListed => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoProof | Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::ForeignCertificate | Self::UnknownTunnel(_) | Self::Revoked { .. } => StatusCode::FORBIDDEN,
        }
    }

    /// Returns the tunnel of a genuine token or certificate that is not valid any more. Only then is the refusal an Event:
    /// anyone can send a forged one.
    pub fn tunnel(self) -> Option<TunnelId> {
        match self {
            Self::Revoked { tunnel, .. } => Some(tunnel),
            _ => None,
        }
    }
}

/// Decides whether an agent gets a certificate. A token wins over a certificate, which may be that of an older epoch.
pub fn decide(
    directory: &Directory,
    installation: Installation,
    key: &SigningKey,
    proof: Proof<'_>,
    now: Timestamp,
) -> Result<Grant, JoinError> {
    let grant = match proof {
        Proof { token: Some(token), .. } => {
            let JoinToken { tunnel, epoch, .. } =
                JoinToken::verify(token.expose_secret(), key, now).map_err(JoinError::Token)?;
            Grant { identity: TunnelIdentity { installation, tunnel, epoch }, renewal: false }
        }
        Proof { certificate: Some(facts), .. } => {
            let identity = facts.agent().ok().filter(|identity| identity.installation == installation);
            Grant { identity: identity.ok_or(JoinError::ForeignCertificate)?, renewal: true }
        }
        Proof { token: None, certificate: None } => return Err(JoinError::NoProof),
    };
    let TunnelIdentity { tunnel, epoch, .. } = grant.identity;
    if !directory.is_listed() {
        return Err(JoinError::NotListed);
    }
    let entry = directory.tunnel(tunnel).ok_or(JoinError::UnknownTunnel(tunnel))?;
    if entry.epoch != epoch {
        return Err(JoinError::Revoked { tunnel, presented: epoch });
    }
    Ok(grant)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chandler_tunnel::{CertificateAuthority, authority};

    use super::*;
    use crate::directory::TunnelEntry;

    struct World {
        installation: Installation,
        key: SigningKey,
        tunnel: TunnelId,
        directory: Directory,
        now: Timestamp,
    }

    impl World {
        fn new() -> Self {
            let tunnel = TunnelId::random().unwrap();
            let entry = TunnelEntry {
                id: tunnel,
                epoch: 2,
                namespace: "fleet".to_owned(),
                cluster: "blue".to_owned(),
                name: "blue".to_owned(),
                endpoint: None,
                last_seen: None,
                hubs: Vec::new(),
                created: None,
            };
            Self {
                installation: Installation::random().unwrap(),
                key: SigningKey::generate().unwrap(),
                tunnel,
                directory: Directory::of([entry]),
                now: Timestamp::from_second(1_800_000_000).unwrap(),
            }
        }

        fn token(&self, tunnel: TunnelId, epoch: u32, lifetime: Duration) -> SecretString {
            JoinToken { tunnel, epoch, expires: self.now + lifetime }.sign(&self.key)
        }

        fn certificate(&self, installation: Installation, tunnel: TunnelId, epoch: u32) -> CertificateFacts {
            let authority = CertificateAuthority::generate(installation, self.now).unwrap();
            let key = authority::generate_key_pem().unwrap();
            let request = authority::certificate_request(&key).unwrap();
            let identity = TunnelIdentity { installation, tunnel, epoch };
            CertificateFacts::from_pem(&authority.sign_agent(&request, identity, self.now).unwrap()).unwrap()
        }

        fn decide(
            &self,
            token: Option<&SecretString>,
            certificate: Option<&CertificateFacts>,
        ) -> Result<Grant, JoinError> {
            decide(&self.directory, self.installation, &self.key, Proof { token, certificate }, self.now)
        }
    }

    #[test]
    fn tokens_and_certificates_of_the_current_epoch_are_accepted() {
        let world = World::new();
        let identity = TunnelIdentity { installation: world.installation, tunnel: world.tunnel, epoch: 2 };
        let token = world.token(world.tunnel, 2, Duration::from_hours(1));
        let current = world.certificate(world.installation, world.tunnel, 2);
        let older = world.certificate(world.installation, world.tunnel, 1);
        assert_eq!(world.decide(Some(&token), None), Ok(Grant { identity, renewal: false }));
        assert_eq!(world.decide(None, Some(&current)), Ok(Grant { identity, renewal: true }));
        assert_eq!(world.decide(Some(&token), Some(&older)), Ok(Grant { identity, renewal: false }));
    }

    #[test]
    fn nothing_else_is_accepted() {
        let world = World::new();
        let (hour, tunnel, other) = (Duration::from_hours(1), world.tunnel, TunnelId::random().unwrap());
        let revoked = JoinError::Revoked { tunnel, presented: 1 };
        let token_rows = [
            ("expired", world.token(tunnel, 2, Duration::ZERO), JoinError::Token(TokenError::Expired)),
            ("revoked", world.token(tunnel, 1, hour), revoked),
            ("unknown", world.token(other, 2, hour), JoinError::UnknownTunnel(other)),
            ("forged", World::new().token(tunnel, 2, hour), JoinError::Token(TokenError::InvalidSignature)),
        ];
        for (case, token, error) in token_rows {
            assert_eq!(world.decide(Some(&token), None), Err(error), "token: {case}");
        }
        let foreign = Installation::random().unwrap();
        let certificate_rows = [
            ("another installation", world.certificate(foreign, tunnel, 2), JoinError::ForeignCertificate),
            ("revoked", world.certificate(world.installation, tunnel, 1), revoked),
            ("unknown", world.certificate(world.installation, other, 2), JoinError::UnknownTunnel(other)),
        ];
        for (case, certificate, error) in certificate_rows {
            assert_eq!(world.decide(None, Some(&certificate)), Err(error), "certificate: {case}");
        }
        assert_eq!(world.decide(None, None), Err(JoinError::NoProof));
        let unlisted = World { directory: Directory::unlisted(), ..world };
        let token = unlisted.token(unlisted.tunnel, 2, hour);
        assert_eq!(unlisted.decide(Some(&token), None), Err(JoinError::NotListed));
    }
}
