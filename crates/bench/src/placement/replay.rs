//! A TLS endpoint that stands for the API servers of many workload clusters.
//!
//! It replays what a real API server with the same releases has answered, so that a thousand clusters fit on one machine.
//! Only this benchmark uses it: tests run against real API servers.

use std::{
    convert::Infallible,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{
        HeaderValue, StatusCode, Uri,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
};
use chandler_sandbox::{certificates::Authority, kubeconfig};
use futures::{StreamExt as _, stream};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::{
    recording::{RecordedRequest, Recording},
    replay_traffic::{Connecting, ReplayTraffic, RequestKind},
};

/// How long a connection takes to open, as on a network. Without it, few attempts would ever be concurrent.
const CONNECT_LATENCY: Duration = Duration::from_millis(20);
/// Pause after a connection could not be accepted, for example because there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a watch sends a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// How long a watch stays open whose request has no `timeoutSeconds`.
const WATCH_TIMEOUT: Duration = Duration::from_mins(30);

/// Maximum size of the content of a request.
const MAX_BODY: usize = 1 << 20;

/// How the clusters of an endpoint behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    Healthy,
    /// Connections stay open and new ones are accepted, but no request is answered.
    Silent,
    /// Open connections are reset, and so are new ones.
    Unreachable,
}

/// The endpoint. It ends when this is dropped.
pub struct ReplayServer {
    port: u16,
    kubeconfig: String,
    behavior: watch::Sender<Behavior>,
    _task: AbortOnDropHandle<()>,
}

impl ReplayServer {
    /// Starts an endpoint whose certificate authority is in `folder`.
    pub async fn start(folder: &Path, recording: Arc<Recording>, traffic: ReplayTraffic) -> Result<Self> {
        let authority = Authority::open(folder, "replay")?;
        let tls = acceptor(&authority)?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("opening a port")?;
        let port = listener.local_addr().context("reading the port")?.port();
        let user = authority.client("replay", &[])?;
        let server = format!("https://127.0.0.1:{port}");
        let kubeconfig = kubeconfig::render("replay", &server, authority.certificate(), &user);
        let (behavior, current) = watch::channel(Behavior::Healthy);
        let endpoint = Endpoint { tls, recording, traffic, behavior: current };
        let task = tokio::spawn(endpoint.run(listener));
        Ok(Self { port, kubeconfig, behavior, _task: AbortOnDropHandle::new(task) })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the kubeconfig of all clusters of this endpoint.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    pub fn set_behavior(&self, behavior: Behavior) {
        self.behavior.send_replace(behavior);
    }
}

fn acceptor(authority: &Authority) -> Result<TlsAcceptor> {
    let pair = authority.server(&[])?;
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // As API servers do.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[derive(Clone)]
struct Endpoint {
    tls: TlsAcceptor,
    recording: Arc<Recording>,
    traffic: ReplayTraffic,
    behavior: watch::Receiver<Behavior>,
}

impl Endpoint {
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn(self.clone().serve(stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn serve(self, stream: TcpStream) {
        // Closing the socket resets the connection, as when an API server or a load balancer dies.
        let _ = stream.set_zero_linger();
        let connecting = self.traffic.connecting();
        tokio::time::sleep(CONNECT_LATENCY).await;
        let mut behavior = self.behavior.clone();
        if self.behavior() == Behavior::Unreachable {
            return;
        }
        let reset = async move {
            let _ = behavior.wait_for(|now| *now == Behavior::Unreachable).await;
        };
        tokio::select! {
            () = self.answer_requests(stream, connecting) => {}
            () = reset => {}
        }
    }

    async fn answer_requests(self, stream: TcpStream, connecting: Connecting) {
        let Ok(stream) = self.tls.accept(stream).await else { return };
        let connection = Connection { endpoint: self, connecting: Arc::new(Mutex::new(Some(connecting))) };
        let router = Router::new().fallback(move |request: Request| connection.clone().respond(request));
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
            .await;
    }

    fn behavior(&self) -> Behavior {
        *self.behavior.borrow()
    }
}

#[derive(Clone)]
struct Connection {
    endpoint: Endpoint,
    /// `None` after the connection was opened, which includes the list and the start of the watch.
    connecting: Arc<Mutex<Option<Connecting>>>,
}

impl Connection {
    async fn respond(self, request: Request) -> Response {
        let kind = self.endpoint.traffic.count(request.method(), request.uri());
        if self.endpoint.behavior() == Behavior::Silent {
            std::future::pending::<()>().await;
        }
        if kind != RequestKind::List {
            self.connecting.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        match kind {
            RequestKind::Write => StatusCode::FORBIDDEN.into_response(),
            RequestKind::Watch => quiet_watch(request.uri()),
            RequestKind::List | RequestKind::Probe | RequestKind::OtherRead | RequestKind::DryRun => {
                match recorded_request(request).await {
                    Ok(request) => self.endpoint.recording.answer(request).await,
                    Err(_) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
                }
            }
        }
    }
}

async fn recorded_request(request: Request) -> Result<RecordedRequest, axum::Error> {
    let (head, body) = request.into_parts();
    Ok(RecordedRequest {
        path: head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        method: head.method,
        accept: head.headers.get(ACCEPT).cloned(),
        content_type: head.headers.get(CONTENT_TYPE).cloned(),
        body: to_bytes(body, MAX_BODY).await?,
    })
}

/// A watch without changes. As an API server does, it sends a bookmark every minute, and ends after its timeout.
fn quiet_watch(uri: &Uri) -> Response {
    let bookmark = bookmark(parameter(uri, "resourceVersion").unwrap_or_default());
    let bookmarks = stream::unfold(bookmark, |bookmark| async {
        tokio::time::sleep(BOOKMARK_INTERVAL).await;
        Some((Ok::<_, Infallible>(bookmark.clone()), bookmark))
    });
    let events = bookmarks.take_until(tokio::time::sleep(watch_timeout(uri)));
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn watch_timeout(uri: &Uri) -> Duration {
    let seconds = parameter(uri, "timeoutSeconds").and_then(|seconds| seconds.parse().ok());
    seconds.map_or(WATCH_TIMEOUT, Duration::from_secs)
}

fn bookmark(version: &str) -> Bytes {
    let object = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"resourceVersion": version},
    });
    Bytes::from(format!("{}\n", json!({"type": "BOOKMARK", "object": object})))
}

fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let parameters =
        uri.query().unwrap_or_default().split('&').filter_map(|parameter| parameter.split_once('='));
    parameters.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_ends_when_its_client_asks_for_it() {
        let rows = [
            ("/api/v1/secrets?watch=true&timeoutSeconds=290&x=1", Duration::from_secs(290)),
            ("/api/v1/secrets?watch=true", WATCH_TIMEOUT),
            ("/api/v1/secrets", WATCH_TIMEOUT),
        ];
        for (uri, expected) in rows {
            assert_eq!(watch_timeout(&uri.parse().unwrap()), expected, "{uri}");
        }
    }

    #[test]
    fn the_parameters_of_a_watch_are_found() {
        let uri = "/api/v1/secrets?watch=true&timeoutSeconds=290&resourceVersion=7".parse().unwrap();
        let rows = [("timeoutSeconds", Some("290")), ("resourceVersion", Some("7")), ("limit", None)];
        for (name, expected) in rows {
            assert_eq!(parameter(&uri, name), expected, "{name}");
        }
        assert_eq!(parameter(&"/api/v1/secrets".parse().unwrap(), "limit"), None);
    }
}
