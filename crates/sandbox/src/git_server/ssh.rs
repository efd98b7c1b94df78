//! Git repositories over ssh, served by `git upload-pack`.

mod key;
mod session;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use russh::server;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub use self::key::SshKey;
use self::session::GitSession;
use super::{Error, WorkTree};

/// The user that may log in.
const USER: &str = "git";

/// Git repositories, served on a free loopback port until it is dropped.
pub struct SshServer {
    pub address: SocketAddr,
    folder: PathBuf,
    connections: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

/// What a server serves, and to whom.
#[derive(Clone)]
pub struct SshSettings {
    /// The keys of the server.
    pub host_keys: Vec<SshKey>,
    /// The key that the user must have.
    pub authorized: SshKey,
    /// Whether the server passes environment variables to Git.
    pub accepts_environment: bool,
    /// Whether the server opens a channel to the client instead of running Git.
    pub opens_channel: bool,
    /// Folder of the repositories.
    pub folder: PathBuf,
}

impl SshSettings {
    /// Returns the settings of an ordinary server with one key.
    pub fn new(folder: &Path, host_key: &SshKey, authorized: &SshKey) -> Self {
        Self {
            host_keys: vec![host_key.clone()],
            authorized: authorized.clone(),
            accepts_environment: true,
            opens_channel: false,
            folder: folder.to_owned(),
        }
    }
}

impl SshServer {
    /// Serves the bare repositories in a folder.
    pub async fn start(settings: SshSettings) -> Result<Self, Error> {
        let keys = settings.host_keys.iter().map(SshKey::private_key).collect::<Result<Vec<_>, Error>>()?;
        let config =
            server::Config { keys, auth_rejection_time: Duration::ZERO, ..server::Config::default() };
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(|source| Error::Listen { source })?;
        let address = listener.local_addr().map_err(|source| Error::Listen { source })?;
        let (folder, connections) = (settings.folder.clone(), Arc::<AtomicUsize>::default());
        let running = run(listener, Arc::new(config), Arc::new(settings), connections.clone());
        Ok(Self { address, folder, connections, server: tokio::spawn(running) })
    }

    /// Creates an empty repository with a work tree for its first branch, `main`.
    pub async fn create(&self, name: &str) -> Result<WorkTree, Error> {
        WorkTree::create(&self.folder, name).await
    }

    /// Returns the address of a repository.
    pub fn url(&self, name: &str) -> String {
        format!("ssh://{USER}@{}/{name}.git", self.address)
    }

    /// Returns the line of `known_hosts` by which the server has this key.
    pub fn known_hosts(&self, key: &SshKey) -> String {
        format!("[{}]:{} {}", self.address.ip(), self.address.port(), key.public)
    }

    /// Returns the number of connections that were opened so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn run(
    listener: TcpListener,
    config: Arc<server::Config>,
    settings: Arc<SshSettings>,
    connections: Arc<AtomicUsize>,
) {
    let mut sessions = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::Relaxed);
        let started = server::run_stream(config.clone(), stream, GitSession::new(settings.clone()));
        sessions.spawn(async move {
            if let Ok(running) = started.await {
                // Clients may end the connection at any time.
                let _ = running.await;
            }
        });
        while sessions.try_join_next().is_some() {}
    }
}
