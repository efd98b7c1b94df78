//! The platform: the namespace whose Extensions are available in all namespaces, and the platform version.

use std::{str::FromStr, sync::Arc, time::Duration};

use chandler_core::resolution::parse_version;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use semver::Version;

use crate::locks::RwLock;

/// The platform. Clones share the version.
#[derive(Clone, Debug)]
pub struct Platform {
    pub namespace: String,
    version: Arc<RwLock<Option<Version>>>,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapKey {
    pub namespace: String,
    pub name: String,
    pub key: String,
}

/// A text that is not the key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not NAMESPACE/CONFIGMAP:KEY")]
pub struct BadConfigMapKey;

/// An error of reading a key of a ConfigMap.
#[derive(Debug, thiserror::Error)]
pub enum ConfigMapError {
    #[error(transparent)]
    Read(#[from] kube::Error),
    #[error("the ConfigMap does not exist")]
    NoConfigMap,
    #[error("the ConfigMap does not have this key")]
    NoKey,
    #[error("{0:?} is not a version")]
    NotAVersion(String),
}

impl FromStr for ConfigMapKey {
    type Err = BadConfigMapKey;

    fn from_str(text: &str) -> Result<Self, BadConfigMapKey> {
        let parts = text.split_once(':').and_then(|(object, key)| Some((object.split_once('/')?, key)));
        match parts {
            Some(((namespace, name), key)) if ![namespace, name, key].contains(&"") => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() })
            }
            _ => Err(BadConfigMapKey),
        }
    }
}

impl ConfigMapKey {
    /// Reads the value.
    pub async fn text(&self, client: &Client) -> Result<String, ConfigMapError> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &self.namespace);
        let found = api.get_opt(&self.name).await?;
        let found = found.ok_or(ConfigMapError::NoConfigMap)?;
        let text = found.data.unwrap_or_default().remove(&self.key);
        text.ok_or(ConfigMapError::NoKey)
    }
}

impl std::fmt::Display for ConfigMapKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.name, self.key)
    }
}

impl Platform {
    pub fn new(namespace: String, version: Option<Version>) -> Self {
        Self { namespace, version: Arc::new(RwLock::new(version)) }
    }

    /// Returns the version, or `None` if it is unknown.
    pub fn version(&self) -> Option<Version> {
        self.version.read().clone()
    }

    /// Reads the version from a ConfigMap and returns whether it has changed. An error leaves it unchanged.
    pub async fn read(&self, client: &Client, from: &ConfigMapKey) -> bool {
        match version(client, from).await {
            Ok(version) => {
                let mut known = self.version.write();
                let before = known.replace(version.clone());
                if before.as_ref() == Some(&version) {
                    return false;
                }
                tracing::info!(%version, %from, "platform version read");
                true
            }
            Err(error) => {
                tracing::warn!(%from, "the version of the platform cannot be read: {error}");
                false
            }
        }
    }

    /// Polls the version forever and calls `changed` when it has changed.
    pub async fn follow(&self, client: &Client, from: &ConfigMapKey, every: Duration, changed: impl Fn()) {
        loop {
            tokio::time::sleep(every).await;
            if self.read(client, from).await {
                changed();
            }
        }
    }
}

async fn version(client: &Client, from: &ConfigMapKey) -> Result<Version, ConfigMapError> {
    let text = from.text(client).await?;
    parse_version(text.trim()).ok_or_else(|| ConfigMapError::NotAVersion(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_config_maps_parse_and_display() {
        let read: ConfigMapKey = "platform/release:version".parse().unwrap();
        assert_eq!((&*read.namespace, &*read.name, &*read.key), ("platform", "release", "version"));
        assert_eq!(read.to_string(), "platform/release:version");
        for wrong in ["", "release:version", "platform/release", "platform/:version", "/a:b", "a/b:"] {
            assert!(wrong.parse::<ConfigMapKey>().is_err(), "{wrong}");
        }
    }
}
