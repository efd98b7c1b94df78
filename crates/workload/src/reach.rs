//! Clients for workload clusters, and the failures that their errors stand for.

use std::{error::Error, fmt, time::Duration};

use chandler_core::{
    failure::{Category, Failure, root_cause},
    reachability::ANSWER_TIMEOUT,
    target::{Target, TargetAuth, TargetProxy},
};
use chandler_telemetry::RequestCounter;
use chandler_tls::{ClientCertificate, Trust, certificates, client_config};
use http::{
    HeaderName, HeaderValue, Request, Uri,
    header::{AUTHORIZATION, HOST, USER_AGENT},
};
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{
            Connection, HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
    },
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _, retry::RetryPolicy},
};
use rustls::{ClientConfig, pki_types::ServerName};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, retry::RetryLayer};

use crate::{
    deadline::ResponseDeadlines,
    probe::{self, Probe},
    proxy::{ProxyFailed, basic_authorization},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection on which nothing arrives for so long is broken: the API server ends every watch before that.
const READ_TIMEOUT: Duration = Duration::from_mins(5);
/// The port that a `Host` header does not name.
const HTTPS_PORT: u16 = 443;

/// A client for a target, and a probe, which has a connection of its own.
pub struct TargetClient {
    pub client: Client,
    pub probe: Probe,
}

/// A client for `target`, whose requests are counted. It is configured by the target alone: kube would also read the proxies
/// of the environment, and verify certificates in another way.
pub fn client(
    target: &Target,
    requests: &RequestCounter,
    watch_silence: Duration,
) -> Result<TargetClient, Failure> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let Some(proxy) = &target.proxy else { return client_over(tcp, target, requests, watch_silence) };
    let url: Uri = proxy.url.parse().map_err(|_| unusable(&"its proxy-url is not a URL"))?;
    if url.scheme_str() == Some("socks5") {
        let mut socks = SocksV5::new(url, tcp);
        if let Some((user, password)) = &proxy.credentials {
            socks = socks.with_auth(user.clone(), password.clone());
        }
        return client_over(through(proxy, socks), target, requests, watch_silence);
    }
    let authorization =
        proxy.credentials.as_ref().and_then(|(user, password)| basic_authorization(user, password));
    if url.scheme_str() == Some("https") {
        let tls = https(tcp, tls_config(target, None)?, None)?;
        return client_over(through(proxy, tunnel(url, tls, authorization)), target, requests, watch_silence);
    }
    client_over(through(proxy, tunnel(url, tcp, authorization)), target, requests, watch_silence)
}

fn unusable(error: &dyn fmt::Display) -> Failure {
    Failure::new(Category::InvalidSpec, format!("the kubeconfig cannot be used: {error}"))
}

fn tunnel<C>(proxy: Uri, connector: C, authorization: Option<HeaderValue>) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy, connector);
    match authorization {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    }
}

/// Names the proxy in the errors of a connector.
fn through<C>(
    proxy: &TargetProxy,
    connector: C,
) -> impl Service<Uri, Response = C::Response, Error = ProxyFailed, Future: Send> + Clone + Send + Sync + use<C>
where
    C: Service<Uri, Error: Error, Future: Send> + Clone + Send + Sync,
{
    let proxy = TargetProxy { url: proxy.url.clone(), credentials: None };
    connector.map_err(move |error: C::Error| ProxyFailed::new(&proxy, &error))
}

/// A client that connects to the API server with `connector`.
fn client_over<C>(
    connector: C,
    target: &Target,
    requests: &RequestCounter,
    watch_silence: Duration,
) -> Result<TargetClient, Failure>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
{
    let identity = client_certificate(target)?;
    let server_name = target.tls.server_name.clone();
    let https = https(connector, tls_config(target, identity)?, server_name)?;
    let headers = headers(target)?;
    let (uri, request) = probe_request(target, &headers)?;
    // Without the timeouts of the client: the caller of the probe limits how long it takes.
    let probe = Probe::new(https.clone(), uri, request, requests.clone());
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(Some(READ_TIMEOUT));
    connector.set_reset_reader_on_write(true);
    connector.set_write_timeout(Some(target.request_timeout));
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);

    let mut config = Config::new(target.server.parse().map_err(|error| unusable(&error))?);
    config.headers = headers;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .layer(config.extra_headers_layer().map_err(|error| unusable(&error))?)
        .map_err(BoxError::from)
        .service(http);
    let builder = ClientBuilder::new(service, config.default_namespace);
    let deadlines = ResponseDeadlines { response: ANSWER_TIMEOUT, watch_silence };
    Ok(TargetClient { client: builder.with_layer(&deadlines).with_layer(requests).build(), probe })
}

/// The headers of every request: who asks, and the credentials.
fn headers(target: &Target) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let agent = HeaderValue::from_static(concat!("chandler/", env!("CARGO_PKG_VERSION")));
    let mut headers = vec![(USER_AGENT, agent)];
    let authorization = match &target.auth {
        Some(TargetAuth::BearerToken(token)) => bearer_authorization(token),
        Some(TargetAuth::Basic { username, password }) => basic_authorization(username, password),
        None => return Ok(headers),
    };
    let refused = || unusable(&"its token contains characters that HTTP does not allow");
    headers.push((AUTHORIZATION, authorization.ok_or_else(refused)?));
    Ok(headers)
}

fn bearer_authorization(token: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Returns where a probe connects to, and its request.
fn probe_request(
    target: &Target,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<(Uri, Request<()>), Failure> {
    let uri = format!("{}{}", target.server.trim_end_matches('/'), probe::PATH);
    let uri: Uri = uri.parse().map_err(|error| unusable(&error))?;
    let host = host(&uri).ok_or_else(|| unusable(&"its server is not a URL"))?;
    let request = Request::get(uri.path()).header(HOST, host).body(());
    let mut request = request.map_err(|error| unusable(&error))?;
    request.headers_mut().extend(headers.iter().cloned());
    Ok((uri, request))
}

/// Returns the value of the header `Host`, as HTTP clients write it.
fn host(uri: &Uri) -> Option<String> {
    let name = uri.host()?;
    let port = uri.port_u16().filter(|port| *port != HTTPS_PORT);
    Some(port.map_or_else(|| name.to_owned(), |port| format!("{name}:{port}")))
}

fn https<C>(
    connector: C,
    tls: ClientConfig,
    server_name: Option<String>,
) -> Result<HttpsConnector<C>, Failure> {
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    if let Some(name) = server_name.filter(|name| !name.is_empty()) {
        let name = ServerName::try_from(name).map_err(|_| unusable(&"its tls-server-name is not a name"))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().wrap_connector(connector))
}

/// The TLS configuration for the API server, or for a proxy, which never gets the client certificate.
fn tls_config(target: &Target, identity: Option<ClientCertificate>) -> Result<ClientConfig, Failure> {
    let trust = match target.tls.ca_pem.as_deref() {
        _ if target.tls.insecure_skip_verify => Trust::Anything,
        None | Some([]) => Trust::System,
        Some(pem) => Trust::Only(certificates(pem).map_err(|error| unusable(&error))?),
    };
    client_config(trust, identity).map_err(|error| unusable(&error))
}

fn client_certificate(target: &Target) -> Result<Option<ClientCertificate>, Failure> {
    let certificate = target.tls.client_certificate_pem.as_deref().unwrap_or_default();
    let key = target.tls.client_key_pem.as_deref().unwrap_or_default();
    if certificate.is_empty() && key.is_empty() {
        return Ok(None);
    }
    let pair = [certificate, key].join(&b'\n');
    ClientCertificate::from_pem(&pair).map(Some).map_err(|error| unusable(&error))
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
        other => unreachable(other),
    }
}

/// Converts an error of a request that got no answer.
pub fn unreachable(error: &dyn Error) -> Failure {
    Failure::new(
        Category::Unreachable,
        format!("the workload cluster cannot be reached: {}", root_cause(error)),
    )
}

#[cfg(test)]
mod tests;
