//! Serves over TLS: the files of a folder, or any other router.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Authentication, Error, Requests};
use crate::certificates::CertificatePair;
use crate::digest;

/// The key that counts responses with the status Not Modified.
const NOT_MODIFIED: &str = "304";

/// The folder that is served and the authentication that it requires.
#[derive(Clone)]
pub(super) struct Site {
    folder: Arc<Path>,
    authentication: Arc<Authentication>,
    requests: Arc<Requests>,
}

impl Site {
    pub fn new(folder: &Path, authentication: Authentication, requests: Arc<Requests>) -> Self {
        Self { folder: folder.into(), authentication: authentication.into(), requests }
    }
}

/// Returns the TLS configuration. With `client_authority` (PEM), clients need a certificate of that authority.
pub(crate) fn tls(pair: &CertificatePair, client_authority: Option<&str>) -> Result<TlsAcceptor, Error> {
    let read = |source| Error::ReadCertificate { source };
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(read)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(read)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |source| Error::Tls { source };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let builder = match client_authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let authority = CertificateDer::from_pem_slice(authority.as_bytes()).map_err(read)?;
            roots.add(authority).map_err(failed)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|source| Error::Verifier { source })?)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(failed)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns the router for the files of a folder.
pub(super) fn files(site: Site) -> Router {
    Router::new().fallback(move |uri: Uri, headers: HeaderMap| respond(site.clone(), uri, headers))
}

pub(crate) async fn run(listener: TcpListener, tls: TlsAcceptor, router: Router) {
    // Dropping the set closes all connections when the server stops.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, tls.clone(), router.clone()));
            }
            Err(error) => tracing::warn!(%error, "cannot accept a connection"),
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, router: Router) {
    // Tests also connect with clients that do not trust the certificate.
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
}

async fn respond(site: Site, uri: Uri, headers: HeaderMap) -> Response {
    if !site.authentication.allows(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    site.requests.count(uri.path());
    let name = uri.path().trim_start_matches('/');
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Ok(bytes) = tokio::fs::read(site.folder.join(name)).await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let etag = format!("\"{}\"", digest::of(&bytes));
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        site.requests.count(NOT_MODIFIED);
        return StatusCode::NOT_MODIFIED.into_response();
    }
    ([(ETAG, etag)], bytes).into_response()
}
