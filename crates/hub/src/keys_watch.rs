//! Reads the keys of the installation from a mounted Secret, and again when they change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use chandler_tunnel::{
    TunnelKeys,
    keys::{KeysError, SIGNING_KEY},
    tls::{self, TlsError},
};
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::watch;

/// How often the files are read.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the keys in {} cannot be used: {source}; the manager creates them in the Secret chandler-tunnel-keys", .dir.display())]
    Keys { dir: PathBuf, source: KeysError },
    #[error("the keys in {} cannot be used for TLS: {source}", .dir.display())]
    Tls { dir: PathBuf, source: TlsError },
    #[error("the task that reads the keys failed")]
    Task,
}

/// The current keys.
pub type KeysReceiver = watch::Receiver<Arc<HubKeys>>;

/// The keys, and the TLS configurations that follow from them.
#[derive(Debug)]
pub struct HubKeys {
    pub keys: TunnelKeys,
    /// For the public port.
    pub public: Arc<ServerConfig>,
    /// For the port of peers.
    pub peer_server: Arc<ServerConfig>,
    /// For connections to peers.
    pub peer_client: Arc<ClientConfig>,
}

impl HubKeys {
    pub fn new(keys: TunnelKeys) -> Result<Self, TlsError> {
        Ok(Self {
            public: Arc::new(tls::public_server_config(&keys)?),
            peer_server: Arc::new(tls::peer_server_config(&keys)?),
            peer_client: Arc::new(tls::peer_client_config(&keys)?),
            keys,
        })
    }

    /// Reads the files of a mounted Secret.
    pub async fn load(dir: &Path) -> Result<Self, LoadError> {
        let dir = dir.to_owned();
        tokio::task::spawn_blocking(move || {
            let keys =
                TunnelKeys::from_dir(&dir).map_err(|source| LoadError::Keys { dir: dir.clone(), source })?;
            Self::new(keys).map_err(|source| LoadError::Tls { dir, source })
        })
        .await
        .map_err(|_| LoadError::Task)?
    }

    /// Reads the files until they are valid: the manager may not have created them yet.
    pub async fn wait(dir: &Path, interval: Duration) -> Self {
        loop {
            match Self::load(dir).await {
                Ok(keys) => return keys,
                Err(error) => tracing::warn!(%error, "waiting for the keys of the tunnels"),
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// Returns whether these keys belong to another installation or authority, or sign other tokens. Then nothing that was
    /// issued with the old ones is valid any more.
    fn replaces(&self, old: &Self) -> bool {
        let (new, old) = (&self.keys, &old.keys);
        let same = new.installation == old.installation
            && new.authority.certificate_pem() == old.authority.certificate_pem()
            && new.to_files().get(SIGNING_KEY) == old.to_files().get(SIGNING_KEY);
        !same
    }
}

/// How a read of the files differs from the one before.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Unchanged,
    /// Another certificate of the hub.
    Renewed,
    Replaced,
}

fn change(old: &HubKeys, new: &HubKeys) -> Change {
    if new.replaces(old) {
        Change::Replaced
    } else if new.keys.hub.certificate == old.keys.hub.certificate {
        Change::Unchanged
    } else {
        Change::Renewed
    }
}

/// Publishes a renewed certificate of the hub. Returns when the keys were replaced by those of another installation: then
/// the hub has to stop, because all connections were accepted with the old ones.
pub async fn run(dir: PathBuf, keys: watch::Sender<Arc<HubKeys>>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let new = match HubKeys::load(&dir).await {
            Ok(new) => new,
            Err(error) => {
                // The files of a Secret are replaced together, but they are read one after the other.
                tracing::warn!(%error, "cannot read the keys of the tunnels again; the old ones stay in use");
                continue;
            }
        };
        let change = change(&keys.borrow(), &new);
        match change {
            Change::Unchanged => {}
            Change::Renewed => {
                tracing::info!("the certificate of the hub was renewed");
                keys.send_replace(Arc::new(new));
            }
            Change::Replaced => {
                tracing::error!(
                    "the keys of the tunnels were replaced; the hub stops and has to be started again"
                );
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chandler_tunnel::HubNames;
    use jiff::Timestamp;

    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    fn names() -> HubNames {
        HubNames::new(&["hub.example:443".to_owned()], "chandler-system")
    }

    fn write(dir: &Path, keys: &TunnelKeys) {
        for (file, content) in keys.to_files() {
            std::fs::write(dir.join(file), content).unwrap();
        }
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_published_and_other_keys_end_the_watch() {
        let dir = tempfile::tempdir().unwrap();
        let waiting = tokio::spawn({
            let path = dir.path().to_owned();
            async move { HubKeys::wait(&path, SOON).await }
        });
        let mut keys = TunnelKeys::generate(&names(), Timestamp::now()).unwrap();
        write(dir.path(), &keys);
        let (sender, mut receiver) = watch::channel(Arc::new(waiting.await.unwrap()));
        let running = tokio::spawn(run(dir.path().to_owned(), sender, SOON));

        keys.renew_hub(&names(), Timestamp::now()).unwrap();
        write(dir.path(), &keys);
        receiver.changed().await.unwrap();
        assert_eq!(receiver.borrow_and_update().keys.hub.certificate, keys.hub.certificate);

        write(dir.path(), &TunnelKeys::generate(&names(), Timestamp::now()).unwrap());
        running.await.unwrap();
        assert_eq!(receiver.borrow().keys.installation, keys.installation, "the old keys stay in use");
    }
}
