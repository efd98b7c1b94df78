//! A Helm chart repository over HTTPS, with a certificate of the sandbox's authority.

mod authentication;
mod index;
pub(crate) mod server;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{self, Authority};
use crate::chart::{self, Package};

pub use self::authentication::Authentication;

/// An error while serving a chart repository.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot listen on a loopback port: {source}")]
    Listen { source: io::Error },
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error("the server's certificate cannot be used: {source}")]
    Tls { source: rustls::Error },
    #[error("cannot verify client certificates: {source}")]
    Verifier { source: rustls::client::VerifierBuilderError },
    #[error("the server's certificate cannot be read: {source}")]
    ReadCertificate { source: rustls_pki_types::pem::Error },
    #[error(transparent)]
    Chart(#[from] chart::Error),
    #[error("the index cannot be written: {source}")]
    Index { source: Box<serde_saphyr::ser::Error> },
}

/// A folder of packaged charts, served on a free loopback port until it is dropped.
pub struct ChartRepository {
    url: String,
    authority: String,
    folder: PathBuf,
    requests: Arc<Requests>,
    server: JoinHandle<()>,
}

/// The number of requests per path.
#[derive(Debug, Default)]
struct Requests {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Requests {
    fn count(&self, path: &str) {
        if let Ok(mut counts) = self.counts.lock() {
            *counts.entry(path.to_owned()).or_default() += 1;
        }
    }
}

impl ChartRepository {
    /// Serves a folder, which may already contain packaged charts.
    pub async fn start(authority: &Authority, folder: &Path) -> Result<Self, Error> {
        Self::start_with_authentication(authority, folder, Authentication::Anonymous).await
    }

    /// Like [`ChartRepository::start`], but requires authentication.
    pub async fn start_with_authentication(
        authority: &Authority,
        folder: &Path,
        authentication: Authentication,
    ) -> Result<Self, Error> {
        let client_authority =
            (authentication == Authentication::ClientCertificate).then(|| authority.certificate());
        let tls = server::tls(&authority.server(&[])?, client_authority)?;
        Self::serve(tls, authority.certificate(), folder, authentication).await
    }

    /// Like [`ChartRepository::start`], with a certificate that is its own certificate authority.
    pub async fn start_self_signed(folder: &Path) -> Result<Self, Error> {
        let pair = certificates::self_signed_server()?;
        let tls = server::tls(&pair, None)?;
        Self::serve(tls, &pair.certificate, folder, Authentication::Anonymous).await
    }

    async fn serve(
        tls: TlsAcceptor,
        authority: &str,
        folder: &Path,
        authentication: Authentication,
    ) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Folder { path: folder.to_owned(), source })?;
        index::write(folder)?;
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(|source| Error::Listen { source })?;
        let address = listener.local_addr().map_err(|source| Error::Listen { source })?;
        let requests = Arc::new(Requests::default());
        let site = server::Site::new(folder, authentication, requests.clone());
        let server = tokio::spawn(server::run(listener, tls, server::files(site)));
        Ok(Self {
            url: format!("https://{address}"),
            authority: authority.to_owned(),
            folder: folder.to_owned(),
            requests,
            server,
        })
    }

    /// Packages a chart's folder and adds it to the index.
    pub fn publish(&self, chart: &Path) -> Result<Package, Error> {
        self.add(Package::pack(chart, None)?)
    }

    /// Like [`ChartRepository::publish`], with another version.
    pub fn publish_version(&self, chart: &Path, version: &str) -> Result<Package, Error> {
        self.add(Package::pack(chart, Some(version))?)
    }

    fn add(&self, package: Package) -> Result<Package, Error> {
        let path = self.folder.join(package.file_name());
        fs::write(&path, &package.bytes).map_err(|source| Error::Folder { path, source })?;
        index::write(&self.folder)?;
        Ok(package)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the certificate of the authority in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority
    }

    /// Returns the number of requests per path, such as `/index.yaml`. The key `304` counts the responses with the
    /// status Not Modified.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.requests.counts.lock().map(|counts| counts.clone()).unwrap_or_default()
    }
}

impl Drop for ChartRepository {
    fn drop(&mut self) {
        self.server.abort();
    }
}
