//! Control planes that are used again: starting one takes more CPU time than most tests.
//!
//! When a Cluster is deleted, its control plane is cleaned, and compared object by object with a new one. Only one that is like a new
//! one, and whose processes nobody has touched, is given to another Cluster.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell, RwLock, Semaphore};

use super::planes::{ClusterKey, DesiredPlane, remove_folder};
use crate::assets::Assets;
use crate::plane::{self, Contents, Network, Plane, PlaneOptions};
use crate::test_record::{self, Record};

/// How many control planes wait for a Cluster.
const MAX_IDLE: usize = 6;
/// How many nodes the control planes have that are used again. A Cluster can add more.
const NODES: u32 = 1;
/// How many control planes are cleaned at the same time.
const CONCURRENT_CLEANING: usize = 2;
/// How long a new control plane may take until its objects no longer change.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(2);
/// How long it may take to clean a control plane.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(45);

/// The control planes without a Cluster.
#[derive(Debug)]
pub(super) struct Pool {
    assets: Assets,
    root: PathBuf,
    started: AtomicU32,
    idle: Mutex<Vec<Plane>>,
    /// Those that the Cluster with their port gets.
    reserved: Mutex<HashMap<u16, Plane>>,
    /// The objects of a new control plane, or why they are not known.
    new: OnceCell<Result<Contents, String>>,
    discarded: std::sync::Mutex<HashSet<String>>,
    cleaning: Semaphore,
    /// Locked for reading until a control plane is cleaned.
    unclean: Arc<RwLock<()>>,
}

impl Pool {
    pub(super) fn new(assets: &Assets, root: &Path) -> Self {
        Self {
            assets: assets.clone(),
            root: root.to_owned(),
            started: AtomicU32::default(),
            idle: Mutex::default(),
            reserved: Mutex::default(),
            new: OnceCell::default(),
            discarded: std::sync::Mutex::default(),
            cleaning: Semaphore::new(CONCURRENT_CLEANING),
            unclean: Arc::default(),
        }
    }

    pub(super) fn discard(&self, namespace: &str) {
        self.discarded().insert(namespace.to_owned());
    }

    fn discarded(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.discarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the port of a control plane, which the next Cluster with it gets.
    pub(super) async fn reserve(&self) -> Option<u16> {
        let plane = self.idle.lock().await.pop()?;
        let port = plane.port();
        self.reserved.lock().await.insert(port, plane);
        Some(port)
    }

    /// Returns the reserved control plane with the port of a Cluster, or a new one. `link` leads to its folder.
    pub(super) async fn start(
        &self,
        key: &ClusterKey,
        link: &Path,
        desired: &DesiredPlane,
    ) -> Result<Plane, plane::Error> {
        let (plane, reused) = match self.reserved_for(key, desired).await? {
            Some(plane) => (plane, true),
            None => (Plane::start(&desired.assets, desired.options(key, self.folder())).await?, false),
        };
        test_record::append(&Record::Assigned { plane: plane.dir(), cluster: link, reused });
        let failed = |source| plane::Error::Folder { path: link.to_owned(), source };
        match tokio::fs::symlink(plane.dir(), link).await {
            Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(source)),
            _ => Ok(plane),
        }
    }

    async fn reserved_for(
        &self,
        key: &ClusterKey,
        desired: &DesiredPlane,
    ) -> Result<Option<Plane>, plane::Error> {
        let Some(plane) = self.reserved.lock().await.remove(&desired.port) else { return Ok(None) };
        let (folder, is_same_version) =
            (plane.dir().to_owned(), plane.version() == desired.assets.kubernetes());
        let fits = is_same_version && desired.nodes >= NODES && desired.network == Network::default();
        // A client of its last Cluster may have gone on.
        let is_usable = fits && self.clean(&plane).await.is_ok();
        if is_usable && let Some(plane) = plane.reassign(&key.name, desired.nodes).await {
            return Ok(Some(plane));
        }
        // Its processes end when it is dropped.
        remove_folder(folder).await?;
        Ok(None)
    }

    /// Takes the control plane of a deleted Cluster. It is cleaned in the background.
    pub(super) async fn give_back(
        self: Arc<Self>,
        key: &ClusterKey,
        link: &Path,
        plane: Arc<Plane>,
    ) -> Result<(), plane::Error> {
        // First, so that it is waited for as soon as the Cluster has no control plane any more.
        let unclean = self.unclean.clone().read_owned().await;
        let unlinked = tokio::fs::remove_file(link).await;
        unlinked.map_err(|source| plane::Error::Folder { path: link.to_owned(), source })?;
        if let Some(reason) = self.unusable(key, &plane).await {
            return remove(key, &plane, reason).await;
        }
        let key = key.clone();
        tokio::spawn(async move {
            let (_unclean, _permit) = (unclean, self.cleaning.acquire().await);
            if let Err(reason) = self.clean(&plane).await {
                return log(remove(&key, &plane, &reason).await);
            }
            if let Some(reason) = self.unusable(&key, &plane).await {
                return log(remove(&key, &plane, reason).await);
            }
            match Arc::try_unwrap(plane) {
                Ok(plane) => self.idle.lock().await.push(plane),
                Err(plane) => log(remove(&key, &plane, "it is still in use").await),
            }
        });
        Ok(())
    }

    /// Waits until the control planes of deleted Clusters are cleaned.
    pub(super) async fn wait_cleaned(&self) {
        let _all = self.unclean.write().await;
    }

    /// Returns why a control plane cannot be used again, whatever is on it.
    async fn unusable(&self, key: &ClusterKey, plane: &Plane) -> Option<&'static str> {
        if !plane.is_untouched() {
            return Some("its processes were touched");
        }
        if self.discarded().contains(&key.namespace) {
            return Some("its test has failed");
        }
        if plane.version() != self.assets.kubernetes() || !plane.has_default_network() {
            return Some("it has another version or network");
        }
        (self.idle.lock().await.len() >= MAX_IDLE).then_some("enough others are idle")
    }

    async fn clean(&self, plane: &Plane) -> Result<(), String> {
        let new = self.new.get_or_init(|| self.contents_of_new()).await.as_ref()?;
        let client = plane.probe().await.map_err(|error| error.to_string())?;
        new.restore(&client, RESTORE_TIMEOUT).await
    }

    /// Starts a control plane to see what is on a new one.
    async fn contents_of_new(&self) -> Result<Contents, String> {
        let options =
            PlaneOptions { network: Network::default(), ..PlaneOptions::full("new", &self.folder(), NODES) };
        let plane = Plane::start(&self.assets, options).await.map_err(|error| error.to_string())?;
        plane.wait_nodes_ready().await.map_err(|error| error.to_string())?;
        let client = plane.probe().await.map_err(|error| error.to_string())?;
        let contents = Contents::of_new(&client, SETTLE_TIMEOUT).await?;
        self.idle.lock().await.push(plane);
        Ok(contents)
    }

    /// Returns the folder of a new control plane. Its name is not that of a Cluster, which contains an underscore.
    fn folder(&self) -> PathBuf {
        self.root.join(format!("plane-{}", self.started.fetch_add(1, Ordering::Relaxed)))
    }

    pub(super) async fn stop(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().await);
        let reserved = std::mem::take(&mut *self.reserved.lock().await);
        futures::future::join_all(idle.iter().chain(reserved.values()).map(Plane::stop)).await;
    }
}

/// Kills a control plane and removes its data.
async fn remove(key: &ClusterKey, plane: &Plane, reason: &str) -> Result<(), plane::Error> {
    test_record::append(&Record::Discarded { cluster: &key.name, reason });
    plane.kill().await;
    remove_folder(plane.dir().to_owned()).await
}

fn log(removed: Result<(), plane::Error>) {
    if let Err(error) = removed {
        tracing::warn!(%error, "a control plane is not removed");
    }
}
