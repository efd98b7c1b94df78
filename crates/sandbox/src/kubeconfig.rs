//! Kubeconfigs with everything inline.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::json;

use crate::certificates::Pair;

/// Why a client could not be made from a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubeconfig cannot be used: {0}")]
    Read(#[from] KubeconfigError),
    #[error("no client can be made from the kubeconfig: {0}")]
    Client(#[from] kube::Error),
}

/// The YAML of a kubeconfig with one cluster and one user.
pub fn render(name: &str, server: &str, authority: &str, user: &Pair) -> String {
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
    // JSON is YAML; the fallback cannot happen for a value made of maps and strings.
    serde_saphyr::to_string(&config).unwrap_or_else(|_| config.to_string())
}

/// A client for the runtime that calls; clients do not survive the runtime they were made in.
pub async fn client(yaml: &str) -> Result<kube::Client, Error> {
    Ok(kube::Client::try_from(config(yaml).await?)?)
}

/// As [`client`], with a user agent by which the audit log tells its requests from others.
pub async fn client_as(yaml: &str, user_agent: &'static str) -> Result<kube::Client, Error> {
    let mut config = config(yaml).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    Ok(kube::Client::try_from(config)?)
}

async fn config(yaml: &str) -> Result<kube::Config, Error> {
    let kubeconfig = Kubeconfig::from_yaml(yaml)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
