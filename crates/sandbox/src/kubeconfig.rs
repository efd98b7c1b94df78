//! Kubeconfigs with inline certificates, and clients made from them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::json;

use crate::certificates::CertificatePair;

/// An error while creating a client from a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubeconfig cannot be used: {0}")]
    Read(#[from] KubeconfigError),
    #[error("cannot create a client from the kubeconfig: {0}")]
    Client(#[from] kube::Error),
}

/// Returns the YAML of a kubeconfig with one cluster and one user.
pub fn render(name: &str, server: &str, authority: &str, user: &CertificatePair) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate-data": STANDARD.encode(&user.certificate),
            "client-key-data": STANDARD.encode(&user.key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    // Serializing maps and strings cannot fail. The fallback is valid too, because JSON is YAML.
    serde_saphyr::to_string(&config).unwrap_or_else(|_| config.to_string())
}

/// Returns a client for the current Tokio runtime. A client stops working when the runtime that created it ends.
pub async fn client(yaml: &str) -> Result<kube::Client, Error> {
    Ok(kube::Client::try_from(config(yaml).await?)?)
}

/// Like [`client`], with a user agent that identifies its requests in the audit log.
pub async fn client_as(yaml: &str, user_agent: &'static str) -> Result<kube::Client, Error> {
    let mut config = config(yaml).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    Ok(kube::Client::try_from(config)?)
}

async fn config(yaml: &str) -> Result<kube::Config, Error> {
    let kubeconfig = Kubeconfig::from_yaml(yaml)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
