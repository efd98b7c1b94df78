//! Clients for workload clusters, and the failures that their errors stand for.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::{
    failure::{Category, Failure, root_cause},
    reachability::ANSWER_TIMEOUT,
    target::{Target, TargetAuth},
};
use chandler_telemetry::RequestCounter;
use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{
        AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
    },
};

use crate::ResponseDeadline;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection on which nothing arrives for so long is broken: the API server ends every watch before that.
const READ_TIMEOUT: Duration = Duration::from_mins(5);

/// A client for `target`, whose requests are counted.
pub async fn client(target: &Target, requests: &RequestCounter) -> Result<Client, Failure> {
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::new(Category::InvalidSpec, format!("the kubeconfig cannot be used: {error}"))
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig(target), &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(&error))?;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(concat!("chandler/", env!("CARGO_PKG_VERSION")))));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    config.write_timeout = Some(target.request_timeout);
    let builder = ClientBuilder::try_from(config).map_err(|error| unusable(&error))?;
    Ok(builder.with_layer(&ResponseDeadline(ANSWER_TIMEOUT)).with_layer(requests).build())
}

fn kubeconfig(target: &Target) -> Kubeconfig {
    let encoded = |data: &Option<Vec<u8>>| data.as_ref().map(|data| BASE64_STANDARD.encode(data));
    let (token, username, password) = match &target.auth {
        Some(TargetAuth::BearerToken(token)) => (Some(token.clone().into()), None, None),
        Some(TargetAuth::Basic { username, password }) => {
            (None, Some(username.clone()), Some(password.clone().into()))
        }
        None => (None, None, None),
    };
    let name = || "target".to_owned();
    Kubeconfig {
        current_context: Some(name()),
        contexts: vec![NamedContext {
            name: name(),
            context: Some(Context { cluster: name(), user: Some(name()), ..Context::default() }),
            ..NamedContext::default()
        }],
        clusters: vec![NamedCluster {
            name: name(),
            cluster: Some(Cluster {
                server: Some(target.server.clone()),
                tls_server_name: target.tls.server_name.clone(),
                insecure_skip_tls_verify: Some(target.tls.insecure_skip_verify),
                certificate_authority_data: encoded(&target.tls.ca_pem),
                ..Cluster::default()
            }),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name(),
            auth_info: Some(AuthInfo {
                token,
                username,
                password,
                client_certificate_data: encoded(&target.tls.client_certificate_pem),
                client_key_data: encoded(&target.tls.client_key_pem).map(Into::into),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        }],
        ..Kubeconfig::default()
    }
}

/// Converts an error of a request to a workload cluster.
pub fn failure_of(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == 401 => Failure::new(
            Category::Unauthorized,
            "the workload cluster does not accept the kubeconfig's credentials; renew the kubeconfig Secret",
        ),
        kube::Error::Api(status) if status.code == 403 => Failure::new(
            Category::Forbidden,
            format!(
                "the workload cluster forbids it: {}; grant the kubeconfig's user the rights",
                status.message
            ),
        ),
        kube::Error::Api(status) => Failure::new(
            Category::Internal,
            format!("the workload cluster answered {}: {}", status.code, status.message),
        ),
        other => Failure::new(
            Category::Unreachable,
            format!("the workload cluster cannot be reached: {}", root_cause(other)),
        ),
    }
}
