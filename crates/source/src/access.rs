//! How to get at a source: certificates and credentials, already read from their Secrets.

use std::{fmt, hash::Hash};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;

use crate::SourceError;

/// How to get at a source. Equal accesses share clients and indexes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Certificate authority, PEM.
    pub ca_pem: Option<Vec<u8>>,
    pub insecure_skip_tls_verify: bool,
    /// A docker configuration, JSON.
    pub docker_config: Option<Vec<u8>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("ca", &self.ca_pem.is_some())
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("credentials", &self.docker_config.is_some())
            .finish()
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: std::collections::HashMap<String, DockerAuth>,
}

#[derive(Deserialize, Default)]
struct DockerAuth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl Access {
    /// User and password for a registry, if the docker configuration has them.
    pub(crate) fn login(&self, registry: &str) -> Result<Option<(String, String)>, SourceError> {
        let Some(config) = &self.docker_config else {
            return Ok(None);
        };
        let bad = || SourceError::BadCredentials { url: registry.to_owned() };
        let mut config: DockerConfig = serde_json::from_slice(config).map_err(|_| bad())?;
        let bare = |key: &str| {
            let key = key.trim_start_matches("https://").trim_start_matches("oci://");
            key.split('/').next().unwrap_or_default().to_owned()
        };
        let key = config.auths.keys().find(|key| bare(key) == registry).cloned();
        let Some(entry) = key.and_then(|key| config.auths.remove(&key)) else {
            return Ok(None);
        };
        if let (Some(username), Some(password)) = (entry.username, entry.password) {
            return Ok(Some((username, password)));
        }
        let Some(auth) = entry.auth else { return Ok(None) };
        let decoded = BASE64_STANDARD.decode(auth.trim()).ok().and_then(|text| String::from_utf8(text).ok());
        let (username, password) =
            decoded.as_deref().and_then(|text| text.split_once(':')).ok_or_else(bad)?;
        Ok(Some((username.to_owned(), password.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(json: &str) -> Access {
        Access { docker_config: Some(json.as_bytes().to_vec()), ..Access::default() }
    }

    #[test]
    fn docker_configurations_are_read_in_both_forms() {
        let pair = Some(("user".to_owned(), "pass:word".to_owned()));
        let encoded = BASE64_STANDARD.encode("user:pass:word");
        let rows = [
            format!(r#"{{"auths":{{"registry.example":{{"auth":"{encoded}"}}}}}}"#),
            r#"{"auths":{"https://registry.example/v2/":{"username":"user","password":"pass:word"}}}"#
                .to_owned(),
        ];
        for json in rows {
            assert_eq!(access(&json).login("registry.example").unwrap(), pair);
        }
        assert_eq!(access(r#"{"auths":{}}"#).login("registry.example").unwrap(), None);
        assert!(access("nonsense").login("registry.example").is_err());
    }

    #[test]
    fn debug_shows_no_secret() {
        assert!(!format!("{:?}", access("canary")).contains("canary"));
    }
}
