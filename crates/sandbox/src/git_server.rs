//! Git repositories over https, served by `git http-backend` with a certificate of the sandbox's authority, and over ssh.

mod cgi;
mod import;
mod program;
pub mod ssh;
mod work_tree;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use self::import::Import;
pub use self::work_tree::WorkTree;
use crate::certificates::Authority;
use crate::repository::{self, Authentication, server};

/// An error while serving or changing a Git repository.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Server(#[from] repository::Error),
    #[error("cannot listen on a loopback port: {source}")]
    Listen { source: io::Error },
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot run git: {source}")]
    Run { source: io::Error },
    #[error("git {arguments} failed: {output}")]
    Git { arguments: String, output: String },
    #[error("cannot run ssh-keygen, a program of OpenSSH: {source}")]
    RunKeygen { source: io::Error },
    #[error("ssh-keygen failed: {output}")]
    Keygen { output: String },
    #[error("cannot read a key that ssh-keygen created: {source}")]
    Key { source: russh::keys::ssh_key::Error },
}

/// The number of requests per kind.
type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// Git repositories, served on a free loopback port until it is dropped.
pub struct GitServer {
    url: String,
    authority: String,
    folder: PathBuf,
    counts: Counts,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Site {
    folder: Arc<Path>,
    authentication: Arc<Authentication>,
    counts: Counts,
}

impl GitServer {
    /// Serves the bare repositories in a folder.
    pub async fn start(authority: &Authority, folder: &Path) -> Result<Self, Error> {
        Self::start_with_authentication(authority, folder, Authentication::Anonymous).await
    }

    /// Like [`GitServer::start`], but requires authentication.
    pub async fn start_with_authentication(
        authority: &Authority,
        folder: &Path,
        authentication: Authentication,
    ) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Folder { path: folder.to_owned(), source })?;
        let pair = authority.server(&[]).map_err(repository::Error::from)?;
        let tls = server::tls(&pair, None)?;
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(|source| Error::Listen { source })?;
        let address = listener.local_addr().map_err(|source| Error::Listen { source })?;
        let counts = Counts::default();
        let site =
            Site { folder: folder.into(), authentication: authentication.into(), counts: counts.clone() };
        let router =
            Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                respond(site.clone(), method, uri, headers, body)
            });
        Ok(Self {
            url: format!("https://{address}"),
            authority: authority.certificate().to_owned(),
            folder: folder.to_owned(),
            counts,
            server: tokio::spawn(server::run(listener, tls, router)),
        })
    }

    /// Creates an empty repository with a work tree for its first branch, `main`.
    pub async fn create(&self, name: &str) -> Result<WorkTree, Error> {
        WorkTree::create(&self.folder, name).await
    }

    /// Creates an empty repository and starts to import commits into it.
    pub async fn import(&self, name: &str) -> Result<Import, Error> {
        Import::start(&self.folder, name).await
    }

    /// Returns the address of a repository.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}.git", self.url)
    }

    /// Returns the certificate of the authority in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority
    }

    /// Returns the number of requests: `info/refs` for connections, `ls-refs` and `fetch` for commands.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.counts.lock().map(|counts| counts.clone()).unwrap_or_default()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Site {
    fn count(&self, uri: &Uri, body: &[u8]) {
        let has_command = |command: &str| body.windows(command.len()).any(|part| part == command.as_bytes());
        let kinds = [
            ("info/refs", uri.path().ends_with("info/refs")),
            ("ls-refs", has_command("command=ls-refs")),
            ("fetch", has_command("command=fetch")),
        ];
        let Ok(mut counts) = self.counts.lock() else { return };
        for (kind, _) in kinds.iter().filter(|(_, is_kind)| *is_kind) {
            *counts.entry((*kind).to_owned()).or_default() += 1;
        }
    }
}

async fn respond(site: Site, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if !site.authentication.allows(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    site.count(&uri, &body);
    let answered = cgi::run(&site.folder, &method, &uri, &headers, &body).await;
    answered.unwrap_or_else(|error| {
        tracing::warn!(%error, "git http-backend failed");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
}
