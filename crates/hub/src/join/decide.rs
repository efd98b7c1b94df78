//! Decides whether an agent gets a certificate. Pure.

use chandler_tunnel::{
    CertificateFacts, Installation, JoinToken, SigningKey, TunnelId, TunnelIdentity, TunnelKey,
    token::TokenError,
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
    #[error(
        "the token or certificate is for the tunnel of another Cluster, which had the same id; read the Secret of the tunnel again"
    )]
    OtherCluster,
    #[error("epoch {presented} of the tunnel was revoked; read the Secret of the tunnel again")]
    Revoked { tunnel: TunnelKey, presented: u32 },
}

impl JoinError {
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotListed => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoProof | Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::ForeignCertificate | Self::UnknownTunnel(_) | Self::OtherCluster | Self::Revoked { .. } => {
                StatusCode::FORBIDDEN
            }
        }
    }

    /// Returns the tunnel of a genuine token or certificate that is not valid any more. Only then is the refusal an Event:
    /// anyone can send a forged one, and what the agents of another Cluster do is not for the readers of this tunnel.
    pub fn tunnel(self) -> Option<TunnelKey> {
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
            let JoinToken { tunnel, owner, epoch, .. } =
                JoinToken::verify(token.expose_secret(), key, now).map_err(JoinError::Token)?;
            Grant { identity: TunnelIdentity { installation, tunnel, owner, epoch }, renewal: false }
        }
        Proof { certificate: Some(facts), .. } => {
            let identity = facts.agent().ok().filter(|identity| identity.installation == installation);
            Grant { identity: identity.ok_or(JoinError::ForeignCertificate)?, renewal: true }
        }
        Proof { token: None, certificate: None } => return Err(JoinError::NoProof),
    };
    let (tunnel, epoch) = (grant.identity.key(), grant.identity.epoch);
    if !directory.is_listed() {
        return Err(JoinError::NotListed);
    }
    if directory.tunnel(tunnel.id).is_none() {
        return Err(JoinError::UnknownTunnel(tunnel.id));
    }
    let entry = directory.owned(tunnel).ok_or(JoinError::OtherCluster)?;
    if entry.epoch != epoch {
        return Err(JoinError::Revoked { tunnel, presented: epoch });
    }
    Ok(grant)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chandler_tunnel::{CertificateAuthority, TunnelOwner, authority};

    use super::*;
    use crate::directory::TunnelEntry;

    struct World {
        installation: Installation,
        key: SigningKey,
        tunnel: TunnelKey,
        directory: Directory,
        now: Timestamp,
    }

    impl World {
        fn new() -> Self {
            let entry = TunnelEntry {
                id: TunnelId::random().unwrap(),
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
                tunnel: entry.key(),
                directory: Directory::of([entry]),
                now: Timestamp::from_second(1_800_000_000).unwrap(),
            }
        }

        fn token(&self, tunnel: TunnelKey, epoch: u32, lifetime: Duration) -> SecretString {
            let TunnelKey { id, owner } = tunnel;
            JoinToken { tunnel: id, owner, epoch, expires: self.now + lifetime }.sign(&self.key)
        }

        fn certificate(&self, installation: Installation, tunnel: TunnelKey, epoch: u32) -> CertificateFacts {
            let authority = CertificateAuthority::generate(installation, self.now).unwrap();
            let key = authority::generate_key_pem().unwrap();
            let request = authority::certificate_request(&key).unwrap();
            let identity = identity(installation, tunnel, epoch);
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

    fn identity(installation: Installation, tunnel: TunnelKey, epoch: u32) -> TunnelIdentity {
        TunnelIdentity { installation, tunnel: tunnel.id, owner: tunnel.owner, epoch }
    }

    #[test]
    fn tokens_and_certificates_of_the_current_epoch_are_accepted() {
        let world = World::new();
        let identity = identity(world.installation, world.tunnel, 2);
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
        let (hour, tunnel) = (Duration::from_hours(1), world.tunnel);
        let other = TunnelKey { id: TunnelId::random().unwrap(), ..tunnel };
        let unknown = JoinError::UnknownTunnel(other.id);
        let revoked = JoinError::Revoked { tunnel, presented: 1 };
        let token_rows = [
            ("expired", world.token(tunnel, 2, Duration::ZERO), JoinError::Token(TokenError::Expired)),
            ("revoked", world.token(tunnel, 1, hour), revoked),
            ("unknown", world.token(other, 2, hour), unknown),
            ("forged", World::new().token(tunnel, 2, hour), JoinError::Token(TokenError::InvalidSignature)),
        ];
        for (case, token, error) in token_rows {
            assert_eq!(world.decide(Some(&token), None), Err(error), "token: {case}");
        }
        let foreign = Installation::random().unwrap();
        let certificate_rows = [
            ("another installation", world.certificate(foreign, tunnel, 2), JoinError::ForeignCertificate),
            ("revoked", world.certificate(world.installation, tunnel, 1), revoked),
            ("unknown", world.certificate(world.installation, other, 2), unknown),
        ];
        for (case, certificate, error) in certificate_rows {
            assert_eq!(world.decide(None, Some(&certificate)), Err(error), "certificate: {case}");
        }
        assert_eq!(world.decide(None, None), Err(JoinError::NoProof));
        let unlisted = World { directory: Directory::unlisted(), ..world };
        let token = unlisted.token(unlisted.tunnel, 2, hour);
        assert_eq!(unlisted.decide(Some(&token), None), Err(JoinError::NotListed));
    }

    #[test]
    fn the_agents_of_another_cluster_are_refused() {
        let world = World::new();
        let hour = Duration::from_hours(1);
        for (namespace, cluster) in [("other", "blue"), ("fleet", "red")] {
            let other = TunnelKey { owner: TunnelOwner::of(namespace, cluster), ..world.tunnel };
            // Also in an earlier epoch: the refusal is not an Event of the tunnel that has the id now.
            for epoch in [1, 2] {
                let token = world.token(other, epoch, hour);
                let certificate = world.certificate(world.installation, other, epoch);
                let refused = Err(JoinError::OtherCluster);
                assert_eq!(world.decide(Some(&token), None), refused, "join of {namespace}/{cluster}");
                assert_eq!(
                    world.decide(None, Some(&certificate)),
                    refused,
                    "renewal of {namespace}/{cluster}"
                );
            }
        }
        assert_eq!(JoinError::OtherCluster.status(), StatusCode::FORBIDDEN);
        assert_eq!(JoinError::OtherCluster.tunnel(), None);
    }
}
