//! An https server on a loopback address whose responses are hostile.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::certificates::Authority;
use crate::repository::{Error, server};

/// An https server. It ends when this is dropped.
pub struct HttpsServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HttpsServer {
    /// Starts a server with a certificate of an authority. `respond` returns the response to a request of a path.
    pub async fn start(
        authority: &Authority,
        respond: impl Fn(&str) -> Response + Clone + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let tls = server::tls(&authority.server(&[])?, None)?;
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(|source| Error::Listen { source })?;
        let address = listener.local_addr().map_err(|source| Error::Listen { source })?;
        let router = Router::new().fallback(move |uri: Uri| {
            let response = respond(uri.path());
            async move { response }
        });
        Ok(Self { address, task: tokio::spawn(server::run(listener, tls, router)) })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns an index with version 1.0.0 of the chart `web` at a URL.
pub fn index(url: &str, digest: &str) -> Response {
    format!("entries:\n  web:\n  - {{version: 1.0.0, urls: ['{url}'], digest: '{digest}'}}\n").into_response()
}

pub fn redirect(target: &str) -> Response {
    (StatusCode::FOUND, [("location", target)]).into_response()
}

/// Returns a response whose body never ends.
pub fn endless(chunk: &'static [u8], pause: Duration) -> Response {
    let chunks = stream::unfold((), move |()| async move {
        tokio::time::sleep(pause).await;
        Some((Ok::<_, std::convert::Infallible>(chunk), ()))
    });
    Body::from_stream(chunks).into_response()
}
