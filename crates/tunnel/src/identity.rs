//! Names of installations, tunnels and hubs, and how certificates carry them.

use std::{fmt, str::FromStr};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::random::{RandomError, from_hex, random_bytes, to_hex};

/// The scheme of the URI in a certificate.
const SCHEME: &str = "chandler://";
/// The path of the URI in the certificate of a hub.
const HUB: &str = "hub";

/// Why a text is not an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("an id must have 32 hexadecimal digits in lowercase")]
    InvalidId,
    #[error("the URI does not name an installation and a tunnel, or a hub")]
    InvalidUri,
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name([u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&to_hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdentityError;

            fn from_str(text: &str) -> Result<Self, IdentityError> {
                from_hex(text).map(Self).ok_or(IdentityError::InvalidId)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdentityError;

            fn try_from(text: String) -> Result<Self, IdentityError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        hex_id! {
            $(#[$doc])*
            $name
        }

        impl $name {
            /// Generates a random id.
            pub fn random() -> Result<Self, RandomError> {
                random_bytes().map(Self)
            }
        }
    };
}

random_id! {
    /// The id of a tunnel: random, and never changed, because UIDs change when clusters move.
    TunnelId
}

random_id! {
    /// The id of an installation of Chandler: random, generated together with its keys.
    Installation
}

hex_id! {
    /// The Cluster that a tunnel was created for, as a digest of its namespace and name. A move changes neither, so another
    /// installation computes the same.
    TunnelOwner
}

impl TunnelOwner {
    /// Returns the owner of a Cluster's tunnel: the first 16 bytes of the SHA-256 of `<namespace>/<cluster>`.
    pub fn of(namespace: &str, cluster: &str) -> Self {
        // A namespace contains no slash, so no two Clusters have the same text.
        let hash = digest(&SHA256, format!("{namespace}/{cluster}").as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_ref()[..16]);
        Self(bytes)
    }
}

/// The tunnel of one Cluster. The id alone does not say whose it is: users can create a ClusterTunnel with the id of another one
/// that was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelKey {
    pub id: TunnelId,
    pub owner: TunnelOwner,
}

/// What the certificate of an agent says: the tunnel of one Cluster at one installation, in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelIdentity {
    pub installation: Installation,
    pub tunnel: TunnelId,
    pub owner: TunnelOwner,
    /// Certificates and tokens of earlier epochs are revoked.
    pub epoch: u32,
}

impl TunnelIdentity {
    pub fn key(&self) -> TunnelKey {
        TunnelKey { id: self.tunnel, owner: self.owner }
    }
}

/// The identity in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificateIdentity {
    Agent(TunnelIdentity),
    Hub(Installation),
}

impl CertificateIdentity {
    /// Returns the URI for the subject alternative names of the certificate.
    pub fn to_uri(&self) -> String {
        match self {
            Self::Agent(TunnelIdentity { installation, tunnel, owner, epoch }) => {
                format!("{SCHEME}{installation}/{tunnel}/{owner}/{epoch}")
            }
            Self::Hub(installation) => format!("{SCHEME}{installation}/{HUB}"),
        }
    }

    /// Reads a URI that [`CertificateIdentity::to_uri`] returned. Every other spelling is refused.
    pub fn from_uri(uri: &str) -> Result<Self, IdentityError> {
        let path = uri.strip_prefix(SCHEME).ok_or(IdentityError::InvalidUri)?;
        let parts: Vec<_> = path.split('/').collect();
        let identity = match parts[..] {
            [installation, HUB] => Self::Hub(installation.parse()?),
            [installation, tunnel, owner, epoch] => Self::Agent(TunnelIdentity {
                installation: installation.parse()?,
                tunnel: tunnel.parse()?,
                owner: owner.parse()?,
                epoch: epoch.parse().map_err(|_| IdentityError::InvalidUri)?,
            }),
            _ => return Err(IdentityError::InvalidUri),
        };
        if identity.to_uri() == uri { Ok(identity) } else { Err(IdentityError::InvalidUri) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTALLATION: &str = "000102030405060708090a0b0c0d0e0f";
    const TUNNEL: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
    const OWNER: &str = "101112131415161718191a1b1c1d1e1f";

    #[test]
    fn identities_are_read_back_from_their_uri() {
        let installation = INSTALLATION.parse().unwrap();
        let (tunnel, owner) = (TUNNEL.parse().unwrap(), OWNER.parse().unwrap());
        let agent = TunnelIdentity { installation, tunnel, owner, epoch: 7 };
        assert_eq!(agent.key(), TunnelKey { id: tunnel, owner });
        for (identity, uri) in [
            (CertificateIdentity::Agent(agent), format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}/7")),
            (CertificateIdentity::Hub(installation), format!("chandler://{INSTALLATION}/hub")),
        ] {
            assert_eq!(identity.to_uri(), uri);
            assert_eq!(CertificateIdentity::from_uri(&uri), Ok(identity));
        }
    }

    #[test]
    fn only_the_canonical_uri_is_accepted() {
        for uri in [
            String::new(),
            "chandler://".to_owned(),
            format!("https://{INSTALLATION}/{TUNNEL}/{OWNER}/7"),
            format!("chandler://{INSTALLATION}/{TUNNEL}"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/7"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}"),
            format!("chandler://{INSTALLATION}/{TUNNEL}//7"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}/07"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}/+7"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}/-1"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}/4294967296"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}/7/"),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{OWNER}/7?x"),
            format!("chandler://{INSTALLATION}/{}/{OWNER}/7", TUNNEL.to_uppercase()),
            format!("chandler://{INSTALLATION}/{TUNNEL}/{}/7", OWNER.replace('a', "A")),
            format!("chandler://{INSTALLATION}/hub/"),
        ] {
            assert!(CertificateIdentity::from_uri(&uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn an_owner_is_the_digest_of_namespace_and_cluster() {
        // printf fleet/blue | sha256sum
        let owner = TunnelOwner::of("fleet", "blue");
        assert_eq!(owner.to_string(), "710a98e72581bfc484e4f131b9291874");
        for (namespace, cluster) in [("fleet", "red"), ("other", "blue"), ("blue", "fleet"), ("fleet", "")] {
            assert_ne!(TunnelOwner::of(namespace, cluster), owner, "{namespace}/{cluster}");
        }
    }

    #[test]
    fn random_ids_differ_and_are_strings_in_json() {
        let id = TunnelId::random().unwrap();
        assert_ne!(id, TunnelId::random().unwrap());
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<TunnelId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<TunnelId>("\"abc\"").is_err());
    }
}
