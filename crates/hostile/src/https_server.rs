//! A repository whose responses are hostile.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use chandler_sandbox::certificates::Authority;
use futures::stream;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// An https server on a loopback address.
pub(crate) struct HttpsServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HttpsServer {
    pub async fn start(
        authority: &Authority,
        respond: impl Fn(&str) -> Response + Clone + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let tls = tls(authority)?;
        let router = Router::new().fallback(move |request: Request| {
            let response = respond(request.uri().path());
            async move { response }
        });
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, router) = (tls.clone(), router.clone());
                connections.spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let service = TowerToHyperService::new(router);
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, task })
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

fn tls(authority: &Authority) -> Result<TlsAcceptor> {
    let pair = authority.server(&[])?;
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns an index with version 1.0.0 of the chart `web` at a URL.
pub(crate) fn index(url: &str, digest: &str) -> Response {
    format!("entries:\n  web:\n  - {{version: 1.0.0, urls: ['{url}'], digest: '{digest}'}}\n").into_response()
}

pub(crate) fn redirect(target: &str) -> Response {
    (StatusCode::FOUND, [("location", target)]).into_response()
}

/// Returns a response whose body never ends.
pub(crate) fn endless(chunk: &'static [u8], pause: Duration) -> Response {
    let chunks = stream::unfold((), move |()| async move {
        tokio::time::sleep(pause).await;
        Some((Ok::<_, std::convert::Infallible>(chunk), ()))
    });
    Body::from_stream(chunks).into_response()
}
