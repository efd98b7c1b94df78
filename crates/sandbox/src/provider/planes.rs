//! The planes that run for the provider, by the Cluster they belong to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::assets::Assets;
use crate::plane::{self, Plane, PlaneOptions};

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

    /// No Kubernetes name has an underscore, so no two keys share a folder.
    fn folder(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    fn from_folder(folder: &str) -> Option<Self> {
        let (namespace, name) = folder.split_once('_')?;
        Some(Self::new(namespace, name))
    }
}

/// What the provider asks of a plane.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) port: u16,
    pub(super) nodes: u32,
    /// As the Cluster spells it.
    pub(super) version: String,
}

#[derive(Debug)]
struct Running {
    plane: Arc<Plane>,
    version: String,
}

/// Every workload plane of a sandbox.
#[derive(Debug)]
pub struct Planes {
    assets: Assets,
    root: PathBuf,
    running: Mutex<HashMap<ClusterKey, Arc<Mutex<Option<Running>>>>>,
}

impl Planes {
    pub(crate) fn new(assets: &Assets, root: &Path) -> Self {
        Self { assets: assets.clone(), root: root.to_owned(), running: Mutex::default() }
    }

    /// The folder of a cluster's plane.
    pub fn folder(root: &Path, key: &ClusterKey) -> PathBuf {
        root.join(key.folder())
    }

    /// The clusters that have a folder, running or not.
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
        let slot = self.slot(key).await;
        let running = slot.lock().await;
        running.as_ref().map(|running| running.plane.clone())
    }

    /// Starts the plane, or brings it back, or restarts it for another version.
    pub(super) async fn ensure(&self, key: &ClusterKey, wanted: &Wanted) -> Result<Arc<Plane>, plane::Error> {
        let slot = self.slot(key).await;
        let mut running = slot.lock().await;
        if let Some(current) = running.as_mut() {
            let broken = current.plane.check().await.err();
            if let Some(error) = &broken {
                tracing::warn!(cluster = %key.name, %error, "restarting a plane");
            }
            if broken.is_some() || current.version != wanted.version {
                current.plane.restart().await?;
                current.version.clone_from(&wanted.version);
            }
            return Ok(current.plane.clone());
        }
        let options = PlaneOptions {
            name: key.name.clone(),
            dir: Self::folder(&self.root, key),
            nodes: Some(wanted.nodes),
            port: Some(wanted.port),
            version: self.assets.kubernetes(),
        };
        let plane = Arc::new(Plane::start(&self.assets, options).await?);
        *running = Some(Running { plane: plane.clone(), version: wanted.version.clone() });
        Ok(plane)
    }

    /// Ends the plane and removes all it kept.
    pub(super) async fn remove(&self, key: &ClusterKey) -> Result<(), plane::Error> {
        let slot = self.slot(key).await;
        if let Some(running) = slot.lock().await.take() {
            running.plane.kill().await;
        }
        self.running.lock().await.remove(key);
        let path = Self::folder(&self.root, key);
        match tokio::fs::remove_dir_all(&path).await {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(plane::Error::Folder { path, source })
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn stop_all(&self) {
        let slots: Vec<_> = self.running.lock().await.drain().map(|(_, slot)| slot).collect();
        let stops = slots.into_iter().map(|slot| async move {
            if let Some(running) = slot.lock().await.take() {
                running.plane.stop().await;
            }
        });
        futures::future::join_all(stops).await;
    }

    async fn slot(&self, key: &ClusterKey) -> Arc<Mutex<Option<Running>>> {
        self.running.lock().await.entry(key.clone()).or_default().clone()
    }
}
