//! The agent's configuration file, which the controller writes and the agent reads.

use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::identity::{Installation, TunnelId};

/// The target of an agent on a control plane node.
pub const DEFAULT_TARGET: &str = "127.0.0.1:6443";
/// Where the agent stores its key, its certificates and the hubs that it received.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/chandler-agent";
/// How many connections an agent keeps to each hub.
pub const DEFAULT_CONNECTIONS: u32 = 2;
/// The largest number of hubs in a list that arrives through the tunnel. ClusterTunnels have at most as many.
pub const MAX_HUBS: usize = 8;

/// A configuration that cannot be read or written. The messages contain nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentConfigError {
    #[error(
        "agent.yaml is not a valid configuration, near line {line}; compare it with the Secret of the tunnel"
    )]
    Invalid { line: u64 },
    #[error("the configuration of the agent cannot be written as YAML")]
    Unwritable,
    #[error("the configuration of the agent names no hub")]
    NoHub,
}

/// `agent.yaml`. Its `Debug` output contains no secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    pub installation: Installation,
    pub tunnel: TunnelId,
    pub hubs: Vec<HubEndpoint>,
    /// `HOST:PORT` of the API server that the agent serves.
    #[serde(default = "default_target")]
    pub target: String,
    /// URL of an HTTP proxy through which the agent dials the hubs, such as `http://user:password@proxy:3128`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_secret")]
    pub proxy: Option<SecretString>,
    #[serde(default = "default_state_dir")]
    pub state_dir: PathBuf,
    #[serde(default = "default_connections")]
    pub connections: u32,
}

/// A hub that agents dial.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubEndpoint {
    /// `HOST:PORT`, as agents reach it.
    pub address: String,
    /// The certificate authority of the hub, in PEM. The agent trusts no other.
    pub ca_bundle: String,
    /// The join token for the installation of this hub.
    #[serde(with = "secret")]
    pub token: SecretString,
}

impl AgentConfig {
    pub fn from_yaml(text: &str) -> Result<Self, AgentConfigError> {
        let config: Self = serde_saphyr::from_str(text).map_err(|error| AgentConfigError::Invalid {
            line: error.location().map_or(0, |location| location.line()),
        })?;
        if config.hubs.is_empty() { Err(AgentConfigError::NoHub) } else { Ok(config) }
    }

    pub fn to_yaml(&self) -> Result<SecretString, AgentConfigError> {
        serde_saphyr::to_string(self).map(SecretString::from).map_err(|_| AgentConfigError::Unwritable)
    }
}

fn default_target() -> String {
    DEFAULT_TARGET.to_owned()
}

fn default_state_dir() -> PathBuf {
    PathBuf::from(DEFAULT_STATE_DIR)
}

fn default_connections() -> u32 {
    DEFAULT_CONNECTIONS
}

/// Serializes a secret as text, for files and messages whose content is secret as a whole.
pub(crate) mod secret {
    use secrecy::ExposeSecret as _;

    use super::{Deserialize, Deserializer, SecretString, Serializer};

    pub fn serialize<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose_secret())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
        String::deserialize(deserializer).map(SecretString::from)
    }
}

/// Serializes an optional secret as text.
pub(crate) mod optional_secret {
    use secrecy::ExposeSecret as _;

    use super::{Deserialize, Deserializer, SecretString, Serializer};

    #[allow(clippy::ref_option, reason = "the signature that serde calls")]
    pub fn serialize<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
        match secret {
            Some(secret) => serializer.serialize_some(secret.expose_secret()),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
        Option::<String>::deserialize(deserializer).map(|text| text.map(SecretString::from))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn config() -> AgentConfig {
        let hub = HubEndpoint {
            address: "hub.example:443".to_owned(),
            ca_bundle: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
            token: "v1.token".into(),
        };
        AgentConfig {
            installation: Installation::random().unwrap(),
            tunnel: TunnelId::random().unwrap(),
            hubs: vec![hub],
            target: "10.0.0.1:6443".to_owned(),
            proxy: Some("http://ann:hunter2@proxy:3128".into()),
            state_dir: PathBuf::from("/state"),
            connections: 3,
        }
    }

    #[test]
    fn configuration_is_read_back() {
        let config = config();
        let yaml = config.to_yaml().unwrap();
        let read = AgentConfig::from_yaml(yaml.expose_secret()).unwrap();
        assert_eq!(read.installation, config.installation);
        assert_eq!(read.tunnel, config.tunnel);
        assert_eq!(read.hubs[0].ca_bundle, config.hubs[0].ca_bundle);
        assert_eq!(read.hubs[0].token.expose_secret(), "v1.token");
        assert_eq!(read.proxy.unwrap().expose_secret(), "http://ann:hunter2@proxy:3128");
        assert_eq!((read.target, read.connections), (config.target, 3));
    }

    #[test]
    fn ids_that_look_like_numbers_stay_texts() {
        for id in ["00000000000000000000000000000010", "1234567890123456789012345678e012"] {
            let mut config = config();
            (config.installation, config.tunnel) = (id.parse().unwrap(), id.parse().unwrap());
            let yaml = config.to_yaml().unwrap();
            let read = AgentConfig::from_yaml(yaml.expose_secret()).unwrap();
            assert_eq!(
                (read.installation.to_string(), read.tunnel.to_string()),
                (id.to_owned(), id.to_owned())
            );
        }
    }

    #[test]
    fn defaults_complete_a_short_configuration() {
        let id = TunnelId::random().unwrap();
        let yaml = format!(
            "installation: {id}\ntunnel: {id}\nhubs:\n- {{address: 'hub:443', caBundle: CA, token: secret}}\n"
        );
        let read = AgentConfig::from_yaml(&yaml).unwrap();
        assert_eq!((read.target.as_str(), read.connections), (DEFAULT_TARGET, DEFAULT_CONNECTIONS));
        assert_eq!(read.state_dir, PathBuf::from(DEFAULT_STATE_DIR));
        assert!(read.proxy.is_none());
    }

    #[test]
    fn secrets_are_neither_printed_nor_in_errors() {
        let config = config();
        let printed = format!("{config:?}");
        assert!(!printed.contains("v1.token") && !printed.contains("hunter2"), "{printed}");
        let broken =
            config.to_yaml().unwrap().expose_secret().replace("connections: 3", "connections: v1.token");
        let error = AgentConfig::from_yaml(&broken).unwrap_err();
        assert!(matches!(error, AgentConfigError::Invalid { .. }));
        assert!(!error.to_string().contains("v1.token") && !format!("{error:?}").contains("v1.token"));
    }
}
