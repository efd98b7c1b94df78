//! Clients for workload clusters, and the failures that their errors stand for.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use chandler_core::{
    addresses::{AddressPolicy, RefusedAddress, ServerCertificate},
    failure::{Category, Failure, cause, root_cause},
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
use hyper_rustls::{
    FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, builderstates::WantsProtocols1,
};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        Builder as HttpBuilder, Client as HttpClient,
        connect::{
            Connection,
            proxy::{SocksV5, Tunnel},
        },
    },
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt as _, retry::RetryPolicy},
};
use rustls::{ClientConfig, client::Resumption, pki_types::ServerName};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, retry::RetryLayer};

use crate::{
    budget::{ClusterBudget, ResponseBudgets},
    deadline::ResponseDeadlines,
    dial::CheckedConnector,
    probe::{self, Probe},
    proxy::{ProxyFailed, basic_authorization},
    request::ClusterClient,
    response::{ResponseLimits, UnusableResponse},
    status::{MAX_MESSAGE, shortened},
    ticks::TickTimer,
    watch_error::WatchError,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection on which nothing arrives for so long is broken: the API server ends every watch before that.
const READ_TIMEOUT: Duration = Duration::from_mins(5);
/// How much of an HTTP/1.1 response is read at once: as much as TLS encrypts at once. The head of a response must not be larger.
const READ_BUFFER: usize = 16 << 10;
/// How often a connection that many requests share is asked whether it still works, and how long the answer may take. Without
/// that, requests would be sent over a connection that was dropped on its way.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How much a server may send on a shared connection, and for one of its requests, before it was read.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 1 << 19;
/// The port that a `Host` header does not name.
const HTTPS_PORT: u16 = 443;

/// A client for a target, and what has connections of its own.
pub struct TargetClient {
    pub client: ClusterClient,
    pub probe: Probe,
    pub shared: SharedClient,
}

/// Creates clients whose requests share one connection if the API server supports HTTP/2.
#[derive(Clone)]
pub struct SharedClient(Arc<dyn Fn() -> Result<ClusterClient, Failure> + Send + Sync>);

impl SharedClient {
    /// Creates a client. It connects with its first request.
    pub fn create(&self) -> Result<ClusterClient, Failure> {
        (self.0)()
    }
}

impl fmt::Debug for SharedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedClient")
    }
}

/// What clients for all targets have in common.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Counts all requests.
    pub requests: RequestCounter,
    /// After this time, a watch that has sent nothing is opened again.
    pub watch_silence: Duration,
    /// The addresses of API servers and proxies that are allowed.
    pub addresses: Arc<AddressPolicy>,
    pub budgets: ResponseBudgets,
}

/// A client for `target`, whose requests are counted. It is configured by the target alone: kube would also read the proxies
/// of the environment, and verify certificates in another way.
pub fn client(target: &Target, options: &ClientOptions) -> Result<TargetClient, Failure> {
    let certificate = ServerCertificate::skipped(target.tls.insecure_skip_verify);
    let tcp = CheckedConnector::new(options.addresses.clone(), certificate);
    let Some(proxy) = &target.proxy else { return client_over(tcp, target, options) };
    let url: Uri = proxy.url.parse().map_err(|_| unusable(&"its proxy-url is not a URL"))?;
    if url.scheme_str() == Some("socks5") {
        let mut socks = SocksV5::new(url, tcp);
        if let Some((user, password)) = &proxy.credentials {
            socks = socks.with_auth(user.clone(), password.clone());
        }
        return client_over(through(proxy, socks), target, options);
    }
    let authorization =
        proxy.credentials.as_ref().and_then(|(user, password)| basic_authorization(user, password));
    if url.scheme_str() == Some("https") {
        let tls = https(tls_config(target, None)?, None)?.enable_http1().wrap_connector(tcp);
        return client_over(through(proxy, tunnel(url, tls, authorization)), target, options);
    }
    client_over(through(proxy, tunnel(url, tcp, authorization)), target, options)
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
    C: Service<Uri, Error: Error + 'static, Future: Send> + Clone + Send + Sync,
{
    let proxy = TargetProxy { url: proxy.url.clone(), credentials: None };
    connector.map_err(move |error: C::Error| ProxyFailed::new(&proxy, &error))
}

/// A client that connects to the API server with `connector`.
fn client_over<C>(connector: C, target: &Target, options: &ClientOptions) -> Result<TargetClient, Failure>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
{
    let tls = tls_config(target, client_certificate(target)?)?;
    let server_name = target.tls.server_name.clone();
    let exclusive = https(tls.clone(), server_name.clone())?.enable_http1().wrap_connector(connector.clone());
    let shared = https(tls, server_name)?.enable_http1().enable_http2().wrap_connector(connector);
    let headers = headers(target)?;
    let (uri, request) = probe_request(target, &headers)?;
    // Without the timeouts of the client: the caller of the probe limits how long it takes.
    let ClientOptions { requests, watch_silence, budgets, .. } = options.clone();
    let probe = Probe::new(exclusive.clone(), uri, request, requests.clone());
    let service = KubernetesService {
        server: target.server.parse().map_err(|error| unusable(&error))?,
        headers,
        write_timeout: target.request_timeout,
        requests,
        deadlines: ResponseDeadlines { response: ANSWER_TIMEOUT, watch_silence },
        budget: budgets.cluster(&target.cluster),
    };
    let client = service.client(exclusive, &http_builder())?;
    let shared = move || service.client(shared.clone(), &shared_http_builder());
    Ok(TargetClient { client, probe, shared: SharedClient(Arc::new(shared)) })
}

/// How connections are read. By default, the buffer of one that reads a large list grows to 400 KiB, and keeps that size while
/// the watch that follows is open.
fn http_builder() -> HttpBuilder {
    let mut builder = HttpClient::builder(TokioExecutor::new());
    builder.http1_read_buf_exact_size(READ_BUFFER);
    builder
}

/// How requests share a connection. It is never given up because it is idle, which a connection with watches is if no other
/// request is made.
fn shared_http_builder() -> HttpBuilder {
    let mut builder = http_builder();
    builder
        .timer(TickTimer::default())
        .pool_idle_timeout(None)
        .pool_max_idle_per_host(1)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_initial_stream_window_size(STREAM_WINDOW);
    builder
}

/// What all requests to an API server have in common, whatever their connection.
struct KubernetesService {
    server: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    write_timeout: Duration,
    requests: RequestCounter,
    deadlines: ResponseDeadlines,
    budget: ClusterBudget,
}

impl KubernetesService {
    fn client<C>(&self, connector: HttpsConnector<C>, http: &HttpBuilder) -> Result<ClusterClient, Failure>
    where
        C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
        C::Response: Connection + Read + Write + Send + Unpin + 'static,
    {
        let mut connector = TimeoutConnector::new(connector);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_read_timeout(Some(READ_TIMEOUT));
        connector.set_reset_reader_on_write(true);
        connector.set_write_timeout(Some(self.write_timeout));
        let http: HttpClient<_, Body> = http.build(connector);

        let mut config = Config::new(self.server.clone());
        config.headers.clone_from(&self.headers);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .layer(RetryLayer::new(RetryPolicy::server_retry()))
            .layer(config.extra_headers_layer().map_err(|error| unusable(&error))?)
            .map_err(BoxError::from)
            .service(http);
        let builder = ClientBuilder::new(service, config.default_namespace);
        // The deadline is also that of an error whose body is read here.
        let builder =
            builder.with_layer(&ResponseLimits).with_layer(&self.deadlines).with_layer(&self.requests);
        Ok(ClusterClient::new(builder.build(), self.budget.clone()))
    }
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

/// Prepares a connector. `server_name` replaces the name that the server's certificate must contain.
fn https(
    tls: ClientConfig,
    server_name: Option<String>,
) -> Result<HttpsConnectorBuilder<WantsProtocols1>, Failure> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let Some(name) = server_name.filter(|name| !name.is_empty()) else { return Ok(builder) };
    let name = ServerName::try_from(name).map_err(|_| unusable(&"its tls-server-name is not a name"))?;
    Ok(builder.with_server_name_resolver(FixedServerNameResolver::new(name)))
}

/// The TLS configuration for the API server, or for a proxy, which never gets the client certificate.
fn tls_config(target: &Target, identity: Option<ClientCertificate>) -> Result<ClientConfig, Failure> {
    let trust = match target.tls.ca_pem.as_deref() {
        _ if target.tls.insecure_skip_verify => Trust::Anything,
        None | Some([]) => Trust::System,
        Some(pem) => Trust::Only(certificates(pem).map_err(|error| unusable(&error))?),
    };
    let mut config = client_config(trust, identity).map_err(|error| unusable(&error))?;
    // Sessions of more than one server would only reserve memory.
    config.resumption = Resumption::in_memory_sessions(1);
    Ok(config)
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
                shortened(&status.message, MAX_MESSAGE)
            ),
        ),
        kube::Error::Api(status) => Failure::new(
            Category::Internal,
            format!(
                "the workload cluster answered {}: {}",
                status.code,
                shortened(&status.message, MAX_MESSAGE)
            ),
        ),
        // Its text quotes what was answered, perhaps by another server.
        kube::Error::SerdeError(_) => WatchError::Unreadable.failure(),
        other => unreachable(other),
    }
}

/// Checks the literal addresses of a target and of its proxy, before anything connects to them.
pub fn check_addresses(target: &Target, addresses: &AddressPolicy) -> Result<(), Failure> {
    let certificate = ServerCertificate::skipped(target.tls.insecure_skip_verify);
    let server: Uri = target.server.parse().map_err(|_| unusable(&"its server is not a URL"))?;
    let server = server.host().ok_or_else(|| unusable(&"its server is not a URL"))?;
    let checked = match &target.proxy {
        None => addresses.check_host(server, certificate),
        Some(proxy) => {
            let url: Uri = proxy.url.parse().map_err(|_| unusable(&"its proxy-url is not a URL"))?;
            let (host, port) = (url.host().unwrap_or_default(), url.port_u16().unwrap_or_default());
            if addresses.trusts(host, port) {
                // What a service of this installation connects to, it decides itself.
                addresses.check_certificate(server, certificate)
            } else {
                addresses
                    .check_host(host, ServerCertificate::Verified)
                    .and_then(|()| addresses.check_proxied_host(server, certificate))
            }
        }
    };
    checked.map_err(|refused| unusable(&refused))
}

/// Converts an error of a request that got no answer, or none that is used.
pub fn unreachable(error: &(dyn Error + 'static)) -> Failure {
    if let Some(refused) = cause::<RefusedAddress>(error) {
        return unusable(refused);
    }
    if let Some(response) = cause::<UnusableResponse>(error) {
        let message = format!("the API server of the workload cluster is not used: {response}");
        return Failure::new(Category::Rejected, message);
    }
    let reason = shortened(&root_cause(error), MAX_MESSAGE);
    Failure::new(Category::Unreachable, format!("the workload cluster cannot be reached: {reason}"))
}

#[cfg(test)]
mod tests;
