//! The control planes that the provider runs, by Cluster.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::pool::Pool;
use super::programs::ProgramVersions;
use crate::assets::{Assets, KubernetesVersion};
use crate::plane::{self, Network, Plane, PlaneOptions};

/// A Cluster's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClusterKey {
    pub namespace: String,
    pub name: String,
}

impl ClusterKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns the folder name of a cluster. It is unique, because Kubernetes names contain no underscore.
    fn folder(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    fn from_folder(folder: &str) -> Option<Self> {
        let (namespace, name) = folder.split_once('_')?;
        Some(Self::new(namespace, name))
    }
}

/// The desired state of a control plane.
#[derive(Debug, Clone)]
pub(super) struct DesiredPlane {
    pub(super) port: u16,
    pub(super) network: Network,
    pub(super) nodes: u32,
    /// The programs, which determine the Kubernetes version.
    pub(super) assets: Assets,
}

/// The control planes of all workload clusters of a sandbox.
#[derive(Debug)]
pub struct Planes {
    versions: ProgramVersions,
    root: PathBuf,
    running: Mutex<HashMap<ClusterKey, Slot>>,
    pool: Option<Arc<Pool>>,
}

type Slot = Arc<Mutex<Option<Arc<Plane>>>>;

impl Planes {
    pub(crate) fn new(assets: &Assets, root: &Path) -> Self {
        Self {
            versions: ProgramVersions::new(assets),
            root: root.to_owned(),
            running: Mutex::default(),
            pool: None,
        }
    }

    /// Control planes that other Clusters get when theirs is deleted.
    pub(crate) fn pooled(assets: &Assets, root: &Path) -> Self {
        Self { pool: Some(Arc::new(Pool::new(assets, root))), ..Self::new(assets, root) }
    }

    /// Makes sure that the control planes of a namespace's Clusters are not used again.
    pub(crate) fn discard(&self, namespace: &str) {
        if let Some(pool) = &self.pool {
            pool.discard(namespace);
        }
    }

    /// Waits until the control planes of deleted Clusters are cleaned.
    pub(crate) async fn wait_cleaned(&self) {
        if let Some(pool) = &self.pool {
            pool.wait_cleaned().await;
        }
    }

    /// Returns the port of a control plane that the next Cluster with it gets. All of them have the default network.
    pub(super) async fn reserve(&self, network: &Network) -> Option<u16> {
        let pool = self.pool.as_ref().filter(|_| *network == Network::default())?;
        pool.reserve().await
    }

    /// Returns the folder of a cluster's control plane.
    pub fn folder(root: &Path, key: &ClusterKey) -> PathBuf {
        root.join(key.folder())
    }

    /// Returns the clusters that have a folder, running or not.
    pub fn folders(root: &Path) -> Vec<(ClusterKey, PathBuf)> {
        let Ok(entries) = std::fs::read_dir(root) else {
            return Vec::new();
        };
        let mut found: Vec<_> = entries
            .flatten()
            .filter_map(|entry| {
                let key = ClusterKey::from_folder(entry.file_name().to_str()?)?;
                Some((key, entry.path()))
            })
            .collect();
        found.sort_by_key(|(_, path)| path.clone());
        found
    }

    pub async fn get(&self, key: &ClusterKey) -> Option<Arc<Plane>> {
        self.slot(key).await.lock().await.clone()
    }

    /// Returns whether a Cluster has a control plane, also while it is started or stopped.
    pub(crate) async fn has(&self, key: &ClusterKey) -> bool {
        let slot = self.running.lock().await.get(key).cloned();
        slot.is_some_and(|slot| slot.try_lock().map_or(true, |plane| plane.is_some()))
    }

    /// Returns the version that a cluster's control plane runs, or ran last.
    pub(super) fn version(&self, key: &ClusterKey) -> Option<KubernetesVersion> {
        Plane::stored_version(&Self::folder(&self.root, key))
    }

    pub(super) fn versions(&self) -> &ProgramVersions {
        &self.versions
    }

    /// Starts, restarts or upgrades a control plane, as needed.
    pub(super) async fn ensure(
        &self,
        key: &ClusterKey,
        desired: DesiredPlane,
    ) -> Result<Arc<Plane>, plane::Error> {
        let slot = self.slot(key).await;
        let mut running = slot.lock().await;
        if let Some(plane) = running.as_ref() {
            if plane.version() == desired.assets.kubernetes() {
                plane.restart_if_failed().await?;
            } else {
                plane.upgrade(&desired.assets).await?;
            }
            return Ok(plane.clone());
        }
        let dir = Self::folder(&self.root, key);
        let plane = match &self.pool {
            Some(pool) => pool.start(key, &dir, &desired).await?,
            None => Plane::start(&desired.assets, desired.options(key, dir)).await?,
        };
        let plane = Arc::new(plane);
        *running = Some(plane.clone());
        Ok(plane)
    }

    /// Kills a control plane and removes its data.
    pub(super) async fn remove(&self, key: &ClusterKey) -> Result<(), plane::Error> {
        let (slot, folder) = (self.slot(key).await, Self::folder(&self.root, key));
        // Locked until the control plane is removed, or waits to be cleaned.
        let mut running = slot.lock().await;
        let removed = match (&self.pool, running.take()) {
            (Some(pool), Some(plane)) => pool.clone().give_back(key, &folder, plane).await,
            (_, plane) => {
                if let Some(plane) = plane {
                    plane.kill().await;
                }
                remove_folder(folder).await
            }
        };
        self.running.lock().await.remove(key);
        removed
    }

    pub(crate) async fn stop_all(&self) {
        let slots: Vec<_> = self.running.lock().await.drain().map(|(_, slot)| slot).collect();
        let stops = slots.into_iter().map(|slot| async move {
            if let Some(plane) = slot.lock().await.take() {
                plane.stop().await;
            }
        });
        futures::future::join_all(stops).await;
        if let Some(pool) = &self.pool {
            pool.stop().await;
        }
    }

    async fn slot(&self, key: &ClusterKey) -> Slot {
        self.running.lock().await.entry(key.clone()).or_default().clone()
    }
}

impl DesiredPlane {
    /// Returns the options of a new control plane.
    pub(super) fn options(&self, key: &ClusterKey, dir: PathBuf) -> PlaneOptions {
        PlaneOptions {
            name: key.name.clone(),
            dir,
            nodes: Some(self.nodes),
            port: Some(self.port),
            shared_etcd: None,
            network: self.network.clone(),
        }
    }
}

/// Removes a folder with all that is in it.
pub(super) async fn remove_folder(path: PathBuf) -> Result<(), plane::Error> {
    match tokio::fs::remove_dir_all(&path).await {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(plane::Error::Folder { path, source })
        }
        _ => Ok(()),
    }
}
