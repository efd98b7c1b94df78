//! Serving the files of one folder over TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Error, Requests};
use crate::certificates::Pair;

pub(super) fn tls(pair: &Pair) -> Result<TlsAcceptor, Error> {
    let read = |source| Error::ReadCertificate { source };
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(read)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(read)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|source| Error::Tls { source })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(super) async fn run(listener: TcpListener, tls: TlsAcceptor, folder: PathBuf, requests: Arc<Requests>) {
    let folder: Arc<Path> = folder.into();
    let router = Router::new().fallback(move |uri: Uri| answer(folder.clone(), requests.clone(), uri));
    // Connections end with the server, not with their peers.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, tls.clone(), router.clone()));
            }
            Err(error) => tracing::warn!(%error, "a connection was not accepted"),
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, router: Router) {
    // A peer that does not trust us is that peer's test.
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
}

async fn answer(folder: Arc<Path>, requests: Arc<Requests>, uri: Uri) -> Response {
    requests.count(uri.path());
    let name = uri.path().trim_start_matches('/');
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return StatusCode::NOT_FOUND.into_response();
    }
    match tokio::fs::read(folder.join(name)).await {
        Ok(bytes) => bytes.into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}
