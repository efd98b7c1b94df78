//! An https server with configurable responses.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    response::{IntoResponse, Response},
};
use chandler_sandbox::certificates::Authority;
use futures::stream;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// Path and `Authorization` of every request.
type Requests = Arc<Mutex<Vec<(String, Option<String>)>>>;

pub struct Server {
    pub address: SocketAddr,
    requests: Requests,
    bodies: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(
        authority: &Authority,
        respond: impl Fn(&str, &HeaderMap) -> Response + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = tls(authority);
        let requests = Requests::default();
        let request_log = requests.clone();
        let bodies = Arc::<Mutex<Vec<String>>>::default();
        let body_log = bodies.clone();
        let router = Router::new().fallback(move |request: Request| {
            let path = request.uri().path_and_query().unwrap().to_string();
            let authorization = request.headers().get(AUTHORIZATION).map(|v| v.to_str().unwrap().to_owned());
            request_log.lock().unwrap().push((path.clone(), authorization));
            let response = respond(&path, request.headers());
            let body_log = body_log.clone();
            async move {
                let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
                body_log.lock().unwrap().push(String::from_utf8(body.to_vec()).unwrap());
                response
            }
        });
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, router) = (tls.clone(), router.clone());
                connections.spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = TowerToHyperService::new(router);
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, requests, bodies, task }
    }

    /// Returns the URL with the IP address of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the URL with a host name that resolves to the server.
    pub fn url_by_name(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// Returns path and `Authorization` of every request.
    pub fn requests(&self) -> Vec<(String, Option<String>)> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the body of every request.
    pub fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn tls(authority: &Authority) -> TlsAcceptor {
    let pair = authority.server(&[]).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Returns an index with version 1.0.0 of the chart `web`.
pub fn index(url: &str, digest: Option<&str>) -> Response {
    let digest = digest.map(|digest| format!(", digest: {digest}")).unwrap_or_default();
    format!("entries:\n  web:\n  - {{version: 1.0.0, urls: ['{url}']{digest}}}\n").into_response()
}

pub fn redirect(target: &str) -> Response {
    (StatusCode::FOUND, [("location", target)]).into_response()
}

pub fn not_found() -> Response {
    StatusCode::NOT_FOUND.into_response()
}

/// Returns a response with an endless body, which repeats `chunk` after a pause.
pub fn endless(chunk: Vec<u8>, pause: std::time::Duration) -> Response {
    let chunks = stream::unfold(chunk, move |chunk| async move {
        tokio::time::sleep(pause).await;
        Some((Ok::<_, std::convert::Infallible>(chunk.clone()), chunk))
    });
    Body::from_stream(chunks).into_response()
}
