//! The certificates with which the management cluster's own API server is verified. A kubeconfig that trusts one of them
//! leads to the management cluster itself.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::Mutex;

use crate::ManagementError;

/// The ConfigMap that Kubernetes publishes in every namespace, and its key.
const CONFIG_MAP: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
/// How long the certificates are used before they are read again.
const FRESH: Duration = Duration::from_mins(10);

/// Reads the certificates.
pub struct ManagementCa {
    client: Client,
    namespace: String,
    cached: Mutex<Option<(String, Instant)>>,
}

impl ManagementCa {
    pub fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, cached: Mutex::default() }
    }

    /// Returns the certificates as PEM, or `None` if the management cluster has not published any yet. Nothing follows from that:
    /// the caller has to wait.
    pub async fn get(&self) -> Result<Option<String>, ManagementError> {
        let mut cached = self.cached.lock().await;
        if let Some((pem, read)) = &*cached
            && read.elapsed() < FRESH
        {
            return Ok(Some(pem.clone()));
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let what = format!("ConfigMap {}/{CONFIG_MAP}", self.namespace);
        let published =
            api.get_opt(CONFIG_MAP).await.map_err(|source| ManagementError::Read { what, source })?;
        let pem = published.and_then(|published| published.data?.remove(KEY));
        let pem = pem.filter(|pem| pem.contains("-----BEGIN CERTIFICATE-----"));
        *cached = pem.clone().map(|pem| (pem, Instant::now()));
        Ok(pem)
    }
}
