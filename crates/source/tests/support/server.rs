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
use chandler_sandbox::{certificates::Authority, https_server::HttpsServer};
use futures::stream;

/// Path and `Authorization` of every request.
type Requests = Arc<Mutex<Vec<(String, Option<String>)>>>;

pub struct Server {
    pub address: SocketAddr,
    requests: Requests,
    bodies: Arc<Mutex<Vec<String>>>,
    https: HttpsServer,
}

impl Server {
    pub async fn start(
        authority: &Authority,
        respond: impl Fn(&str, &HeaderMap) -> Response + Clone + Send + Sync + 'static,
    ) -> Self {
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
        let https = HttpsServer::start(authority, router).await.unwrap();
        Self { address: https.address, requests, bodies, https }
    }

    /// Returns the URL with the IP address of the server.
    pub fn url(&self) -> String {
        self.https.url()
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
