//! The proxy entry of a kubeconfig: adds, repairs and removes it, and changes nothing else.

mod edit;

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use self::edit::with_proxy;
use crate::identity::ClusterKey;

/// The proxy that a kubeconfig should have.
#[derive(Clone, Copy)]
pub struct KubeconfigProxy<'a> {
    pub cluster: &'a ClusterKey,
    /// Host and port of the API server, the only address that the hub connects to.
    pub endpoint: &'a str,
    /// The URL of the hub, with user name and password.
    pub url: &'a str,
    /// The certificates, as PEM, that the management cluster's own API server is verified with.
    pub management_ca: &'a str,
}

/// What has to be done about a kubeconfig.
#[derive(Clone, PartialEq, Eq)]
pub enum KubeconfigEdit {
    /// The text to write.
    Change(String),
    NoChange,
    /// It is left unchanged.
    Refused(KubeconfigRefusal),
}

// A kubeconfig contains secrets.
impl fmt::Debug for KubeconfigEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(_) => f.write_str("Change"),
            Self::NoChange => f.write_str("NoChange"),
            Self::Refused(refusal) => write!(f, "Refused({refusal:?})"),
        }
    }
}

/// Why a kubeconfig is left unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigRefusal {
    #[error("the kubeconfig is not valid YAML of a Config")]
    Unreadable,
    #[error(
        "the kubeconfig has no current context, or its context does not name exactly one cluster of the kubeconfig"
    )]
    NoCluster,
    #[error("the kubeconfig's server is not an https address")]
    NotHttps,
    #[error(
        "the kubeconfig's server is {server}, but the Cluster's endpoint, the only address that the hub connects to, is \
         {endpoint}; make them equal"
    )]
    OtherServer { server: String, endpoint: String },
    #[error(
        "the kubeconfig has insecure-skip-tls-verify: through a proxy, nothing would prove which API server answers; use \
         certificate-authority-data instead"
    )]
    Insecure,
    #[error("the kubeconfig has another proxy-url; remove it, or disable the tunnel of the Cluster")]
    OtherProxy,
    #[error(
        "the kubeconfig leads to the management cluster itself, which must not be reached through its own hub; disable the \
         tunnel of the Cluster"
    )]
    SelfHosted,
}

/// Decides how a kubeconfig gets the hub as the proxy of its current cluster.
pub fn proxy_kubeconfig(text: &str, proxy: &KubeconfigProxy<'_>) -> KubeconfigEdit {
    let (config, index) = match read(text) {
        Ok(read) => read,
        Err(refusal) => return KubeconfigEdit::Refused(refusal),
    };
    let cluster = &config["clusters"][index]["cluster"];
    if let Err(refusal) = check(cluster, proxy) {
        return KubeconfigEdit::Refused(refusal);
    }
    match proxy_url(cluster) {
        Some(url) if url == proxy.url => KubeconfigEdit::NoChange,
        Some(url) if !is_hub(url, proxy.cluster) => KubeconfigEdit::Refused(KubeconfigRefusal::OtherProxy),
        _ => KubeconfigEdit::Change(with_proxy(text, config, index, Some(proxy.url))),
    }
}

/// Decides how a kubeconfig loses the hub as its proxy. Other proxies are kept.
pub fn direct_kubeconfig(text: &str, cluster: &ClusterKey) -> KubeconfigEdit {
    let (config, index) = match read(text) {
        Ok(read) => read,
        Err(refusal) => return KubeconfigEdit::Refused(refusal),
    };
    match proxy_url(&config["clusters"][index]["cluster"]) {
        Some(url) if is_hub(url, cluster) => KubeconfigEdit::Change(with_proxy(text, config, index, None)),
        _ => KubeconfigEdit::NoChange,
    }
}

/// Returns the client certificate of the current user, as PEM.
pub fn client_certificate_pem(text: &str) -> Option<Vec<u8>> {
    let config = edit::parse(text)?;
    let user = current_context(&config)?["user"].as_str()?;
    let users = config["users"].as_array()?;
    let user = users.iter().find(|one| one["name"] == user)?;
    decoded(&user["user"]["client-certificate-data"])
}

/// Parses a kubeconfig. Returns it and the position of its current cluster.
fn read(text: &str) -> Result<(Value, usize), KubeconfigRefusal> {
    let config = edit::parse(text).ok_or(KubeconfigRefusal::Unreadable)?;
    let name = current_context(&config).and_then(|context| context["cluster"].as_str());
    let clusters = config["clusters"].as_array();
    let (name, clusters) = name.zip(clusters).ok_or(KubeconfigRefusal::NoCluster)?;
    let mut named = clusters.iter().enumerate().filter(|(_, cluster)| cluster["name"] == name);
    match (named.next(), named.next()) {
        (Some((index, cluster)), None) if cluster["cluster"].is_object() => Ok((config, index)),
        _ => Err(KubeconfigRefusal::NoCluster),
    }
}

fn current_context(config: &Value) -> Option<&Value> {
    let current = config["current-context"].as_str()?;
    let contexts = config["contexts"].as_array()?;
    contexts.iter().find(|context| context["name"] == current).map(|context| &context["context"])
}

fn check(cluster: &Value, proxy: &KubeconfigProxy<'_>) -> Result<(), KubeconfigRefusal> {
    let server = cluster["server"].as_str().and_then(|url| url.strip_prefix("https://"));
    let server = authority(server.ok_or(KubeconfigRefusal::NotHttps)?);
    if is_self_hosted(&server, cluster, proxy.management_ca) {
        return Err(KubeconfigRefusal::SelfHosted);
    }
    if cluster["insecure-skip-tls-verify"] == true {
        return Err(KubeconfigRefusal::Insecure);
    }
    if !server.eq_ignore_ascii_case(proxy.endpoint) {
        return Err(KubeconfigRefusal::OtherServer { server, endpoint: proxy.endpoint.to_owned() });
    }
    Ok(())
}

/// Returns host and port of a URL without its scheme.
fn authority(url: &str) -> String {
    let authority = url.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port { authority.to_owned() } else { format!("{authority}:443") }
}

fn is_self_hosted(server: &str, cluster: &Value, management_ca: &str) -> bool {
    if server.starts_with("kubernetes.default.svc") {
        return true;
    }
    let Some(own) = decoded(&cluster["certificate-authority-data"]) else { return false };
    let own = String::from_utf8_lossy(&own);
    let management = certificates(management_ca);
    certificates(&own).iter().any(|certificate| management.contains(certificate))
}

/// Returns the certificates of a PEM text, without line breaks.
fn certificates(pem: &str) -> Vec<String> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let bodies = blocks.filter_map(|block| block.split("-----END").next());
    bodies.map(|body| body.split_whitespace().collect()).collect()
}

fn decoded(field: &Value) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(field.as_str()?.trim()).ok()
}

fn proxy_url(cluster: &Value) -> Option<&str> {
    cluster["proxy-url"].as_str().filter(|url| !url.is_empty())
}

/// Returns whether a proxy is the hub of this or another installation: its user names the Cluster.
fn is_hub(url: &str, cluster: &ClusterKey) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
    let user = authority.rsplit_once('@').and_then(|(login, _)| login.split(':').next());
    user == Some(format!("{}.{}", cluster.namespace, cluster.name).as_str())
}

#[cfg(test)]
mod tests;
