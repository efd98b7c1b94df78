//! A client for the cluster of a request.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_tool::generated::tool::{BasicAuth, Impersonate, Proxy, Target, auth::Method};
use http::{HeaderValue, Uri};
use hyper::rt::{Read, Write};
use hyper_util::{
    client::legacy::connect::{Connection, proxy::Tunnel},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
    config::{
        AuthInfo, Cluster as ClusterInfo, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
        NamedCluster, NamedContext,
    },
};
use tower::{BoxError, Service, ServiceBuilder};

use crate::{
    dial::{Dialer, Gate},
    failure::{Category, Failure},
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster, for one call of the contract.
pub struct Cluster {
    pub client: Client,
    request_timeout: Duration,
}

impl Cluster {
    /// Prepares requests to a cluster. Sends nothing.
    pub async fn new(target: Option<Target>, gate: &Gate) -> Result<Self, Failure> {
        let target = target.filter(|target| !target.server.is_empty());
        let target = target
            .ok_or_else(|| Failure::new(Category::Internal, "the request has no server to connect to"))?;
        let request_timeout = target.request_timeout.and_then(|timeout| timeout.try_into().ok());
        let dialer = Dialer { gate: gate.clone() };
        let unusable = |error: &dyn std::error::Error| {
            Failure::new(Category::Unreachable, format!("the target cannot be used: {error}"))
        };
        let tunnel = target.proxy.clone().map(|proxy| tunnel(&proxy, dialer.clone())).transpose()?;
        let config = Config::from_custom_kubeconfig(kubeconfig(target), &KubeConfigOptions::default())
            .await
            .map_err(|error| unusable(&error))?;
        let client = match tunnel {
            Some(tunnel) => client(&config, tunnel),
            None => client(&config, dialer),
        };
        let client = client.map_err(|error| unusable(&error))?;
        Ok(Self { client, request_timeout: request_timeout.unwrap_or(REQUEST_TIMEOUT) })
    }

    /// Sends a request and waits for the response, but not longer than the target allows.
    pub async fn request<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        match tokio::time::timeout(self.request_timeout, request).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Failure::new(
                Category::Unreachable,
                format!("the API server did not answer within {:?}", self.request_timeout),
            )),
        }
    }
}

/// Connects through an http proxy. This tool knows no others.
fn tunnel(proxy: &Proxy, dialer: Dialer) -> Result<Tunnel<Dialer>, Failure> {
    let url = proxy.url.parse::<Uri>().ok().filter(|url| url.scheme_str() == Some("http"));
    let url = url.ok_or_else(|| {
        Failure::new(Category::Unreachable, "the target's proxy is not an http URL, which this tool needs")
    })?;
    let tunnel = Tunnel::new(url, dialer);
    let Some(BasicAuth { username, password }) = &proxy.auth else { return Ok(tunnel) };
    let login = BASE64_STANDARD.encode(format!("{username}:{password}"));
    let login = HeaderValue::try_from(format!("Basic {login}"));
    Ok(tunnel.with_auth(login.map_err(|_| Failure::new(Category::Internal, "base64 is a header"))?))
}

fn client<C>(config: &Config, connector: C) -> kube::Result<Client>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
{
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

fn kubeconfig(target: Target) -> Kubeconfig {
    let tls = target.tls.unwrap_or_default();
    let encoded = |data: &[u8]| (!data.is_empty()).then(|| BASE64_STANDARD.encode(data));
    let Impersonate { user, groups } = target.impersonate.unwrap_or_default();
    let mut auth = AuthInfo {
        client_certificate_data: encoded(&tls.client_certificate_pem),
        client_key_data: encoded(&tls.client_key_pem).map(Into::into),
        impersonate: (!user.is_empty()).then_some(user),
        impersonate_groups: (!groups.is_empty()).then_some(groups),
        ..AuthInfo::default()
    };
    match target.auth.and_then(|auth| auth.method) {
        Some(Method::BearerToken(token)) => auth.token = Some(token.into()),
        Some(Method::Basic(basic)) => {
            auth.username = Some(basic.username);
            auth.password = Some(basic.password.into());
        }
        None => {}
    }
    let cluster = ClusterInfo {
        server: Some(target.server),
        tls_server_name: (!tls.server_name.is_empty()).then_some(tls.server_name),
        insecure_skip_tls_verify: Some(tls.insecure_skip_verify),
        certificate_authority_data: encoded(&tls.ca_pem),
        ..ClusterInfo::default()
    };
    let name = || "target".to_owned();
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    Kubeconfig {
        current_context: Some(name()),
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(auth), ..NamedAuthInfo::default() }],
        ..Kubeconfig::default()
    }
}
