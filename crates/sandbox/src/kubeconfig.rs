//! Kubeconfigs with inline certificates, and clients made from them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::json;
use tower::{BoxError, ServiceBuilder};

use crate::certificates::CertificatePair;
use crate::netns::Connector;

/// An error while creating a client from a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubeconfig cannot be used: {0}")]
    Read(#[from] KubeconfigError),
    #[error("cannot create a client from the kubeconfig: {0}")]
    Client(#[from] kube::Error),
}

/// The names of the entries of a kubeconfig.
struct Names<'a> {
    cluster: &'a str,
    user: &'a str,
    context: &'a str,
}

/// Returns the YAML of a kubeconfig with one cluster and one user.
pub fn render(name: &str, server: &str, authority: &str, user: &CertificatePair) -> String {
    render_named(&Names { cluster: name, user: name, context: name }, server, authority, user)
}

/// Returns the YAML of an administrator's kubeconfig, with the names that Cluster API gives to its entries.
pub fn render_admin(cluster: &str, server: &str, authority: &str, user: &CertificatePair) -> String {
    let user_name = format!("{cluster}-admin");
    let context = format!("{user_name}@{cluster}");
    render_named(&Names { cluster, user: &user_name, context: &context }, server, authority, user)
}

fn render_named(names: &Names<'_>, server: &str, authority: &str, user: &CertificatePair) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": names.cluster, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": names.user, "user": {
            "client-certificate-data": STANDARD.encode(&user.certificate),
            "client-key-data": STANDARD.encode(&user.key),
        }}],
        "contexts": [{"name": names.context, "context": {"cluster": names.cluster, "user": names.user}}],
        "current-context": names.context,
    });
    // Serializing maps and strings cannot fail. The fallback is valid too, because JSON is YAML.
    serde_saphyr::to_string(&config).unwrap_or_else(|_| config.to_string())
}

/// Returns a client for the current Tokio runtime. A client stops working when the runtime that created it ends.
pub async fn client(yaml: &str) -> Result<kube::Client, Error> {
    Ok(kube::Client::try_from(config(yaml).await?)?)
}

/// Like [`client`], with connections that are opened inside a network namespace.
pub async fn client_in(yaml: &str, namespace: &str) -> Result<kube::Client, Error> {
    client_with(&config(yaml).await?, Connector::new(namespace))
}

/// Like [`client_as`], with connections that are opened inside a network namespace.
pub async fn client_in_as(
    yaml: &str,
    namespace: &str,
    user_agent: &'static str,
) -> Result<kube::Client, Error> {
    let mut config = config(yaml).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    client_with(&config, Connector::new(namespace))
}

fn client_with(config: &kube::Config, connector: Connector) -> Result<kube::Client, Error> {
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
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
