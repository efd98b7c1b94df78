//! A sandbox: a management cluster with Cluster API and the sandbox provider, and its workload clusters.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::assets::Assets;
use crate::capi::{self, Core, RuntimeSdk};
use crate::certificates::{self, Authority};
use crate::plane::{self, Network, Plane, PlaneOptions};
use crate::process::Identity;
use crate::progress::ProgressReporter;
use crate::provider::{ClusterKey, Planes, Provider};
use crate::{clusters, kubeconfig, process};

/// The name of the management cluster.
pub const MANAGEMENT: &str = "management";

const MANAGEMENT_NODES: u32 = 1;
/// How often to look whether deleted Clusters are gone.
const CLEAN_POLL: Duration = Duration::from_millis(250);
const AVAILABLE_TIMEOUT: Duration = Duration::from_mins(3);

/// An error while starting or using a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("another process runs the sandbox in {}: stop it first, or choose another folder", dir.display())]
    Running { dir: PathBuf },
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error("management cluster: {0}")]
    Management(#[from] plane::Error),
    #[error(transparent)]
    Capi(#[from] capi::Error),
    #[error(transparent)]
    Clusters(#[from] clusters::Error),
}

/// The configuration of a sandbox.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder with all data. A sandbox that is started in the same folder again has the same clusters.
    pub dir: PathBuf,
    /// The minimum number of workload clusters.
    pub clusters: u32,
    /// The number of Nodes of each new workload cluster.
    pub nodes: u32,
}

/// The folder of a sandbox.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the process that runs the sandbox, if any.
    pub fn owner(&self) -> Option<Identity> {
        let record = fs::read_to_string(self.root.join("owner")).ok()?;
        record.parse::<Identity>().ok().filter(Identity::is_running)
    }

    pub fn management(&self) -> PathBuf {
        self.root.join(MANAGEMENT)
    }

    pub fn planes(&self) -> PathBuf {
        self.root.join("planes")
    }

    /// Returns the folder of a control plane by the name that the CLI takes: `management`, `alpha` or `namespace/name`.
    pub fn plane(&self, name: &str) -> PathBuf {
        if name == MANAGEMENT {
            return self.management();
        }
        let (namespace, name) = name.split_once('/').unwrap_or((clusters::NAMESPACE, name));
        Planes::folder(&self.planes(), &ClusterKey::new(namespace, name))
    }

    /// Returns the file with the output of the owner.
    pub fn owner_log(&self) -> PathBuf {
        self.root.join("logs/owner.log")
    }

    /// Returns whether the given owner has reported that all clusters are up.
    pub fn is_ready(&self, owner: &Identity) -> bool {
        fs::read_to_string(self.root.join("ready")).is_ok_and(|ready| ready == owner.to_string())
    }

    /// Records that all clusters are up. Called by the owner.
    pub fn mark_ready(&self) -> Result<(), Error> {
        let path = self.root.join("ready");
        let owner = Identity::current().map(|owner| owner.to_string()).unwrap_or_default();
        fs::write(&path, owner).map_err(|source| Error::Folder { path, source })
    }

    /// Returns a client of the management cluster.
    pub async fn management_client(&self) -> Result<kube::Client, Error> {
        let path = self.management().join("kubeconfig");
        let yaml = fs::read_to_string(&path).map_err(|source| Error::Folder { path, source })?;
        Ok(kubeconfig::client(&yaml).await.map_err(plane::Error::Kubeconfig)?)
    }

    /// Terminates processes that a killed owner has left running.
    pub fn terminate_orphans(&self) {
        process::terminate_orphans(&self.management());
        process::terminate_orphans(&self.capi());
        for (_, plane) in Planes::folders(&self.planes()) {
            process::terminate_orphans(&plane);
        }
    }

    /// Removes the data of the sandbox, and the folder if it is empty afterwards.
    pub fn remove(&self) -> Result<(), Error> {
        for folder in [MANAGEMENT, "planes", "capi", "pki", "logs"] {
            ignore_not_found(fs::remove_dir_all(self.root.join(folder)), &self.root)?;
        }
        for file in ["owner", "ready", "lock"] {
            ignore_not_found(fs::remove_file(self.root.join(file)), &self.root)?;
        }
        // Fails if the folder contains files that are not the sandbox's.
        let _ = fs::remove_dir(&self.root);
        Ok(())
    }

    pub(crate) fn capi(&self) -> PathBuf {
        self.root.join("capi")
    }

    /// Locks the folder and records this process as the owner.
    fn lock(&self) -> Result<File, Error> {
        let failed = |source| Error::Folder { path: self.root.clone(), source };
        fs::create_dir_all(self.capi()).map_err(failed)?;
        let lock = File::create(self.root.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Running { dir: self.root.clone() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        if let Some(owner) = Identity::current() {
            fs::write(self.root.join("owner"), owner.to_string()).map_err(failed)?;
        }
        Ok(lock)
    }
}

fn ignore_not_found(result: io::Result<()>, path: &Path) -> Result<(), Error> {
    match result {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Folder { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// A running sandbox. Dropping it kills its processes; [`Sandbox::down`] stops them in order.
pub struct Sandbox {
    folder: Folder,
    assets: Assets,
    authority: Authority,
    management: Plane,
    core: Core,
    provider: Provider,
    planes: Arc<Planes>,
    nodes: u32,
    _lock: File,
}

impl Sandbox {
    /// Starts the management cluster and creates the workload clusters. [`Sandbox::wait_ready`] waits for the latter.
    pub async fn up(
        assets: &Assets,
        options: &Options,
        progress: &dyn ProgressReporter,
    ) -> Result<Self, Error> {
        Self::up_on(assets, options, Network::default(), progress).await
    }

    /// Like [`Sandbox::up`], with a management API server on another network than loopback.
    pub async fn up_on(
        assets: &Assets,
        options: &Options,
        network: Network,
        progress: &dyn ProgressReporter,
    ) -> Result<Self, Error> {
        let planes = Arc::new(Planes::new(assets, &Folder::new(&options.dir).planes()));
        Self::start(planes, assets, options, network, progress).await
    }

    /// Like [`Sandbox::up_on`], but control planes of deleted Clusters are used again for others.
    pub(crate) async fn up_with_pool(
        assets: &Assets,
        options: &Options,
        network: Network,
        progress: &dyn ProgressReporter,
    ) -> Result<Self, Error> {
        let planes = Arc::new(Planes::pooled(assets, &Folder::new(&options.dir).planes()));
        Self::start(planes, assets, options, network, progress).await
    }

    /// Makes sure that the control planes of a namespace's Clusters are not used again.
    pub(crate) fn discard(&self, namespace: &str) {
        self.planes.discard(namespace);
    }

    /// Waits until the Clusters that are being deleted are gone, and their control planes cleaned.
    pub(crate) async fn wait_cleaned(&self, timeout: Duration) -> Result<(), Error> {
        let (client, deadline) = (self.management.client().await?, Instant::now() + timeout);
        // A Cluster without a control plane may never be deleted, and takes no CPU time.
        while let Some(name) = self.deleted_with_plane(&client).await? {
            if Instant::now() > deadline {
                return Err(clusters::Error::NotDeleted { name, timeout }.into());
            }
            tokio::time::sleep(CLEAN_POLL).await;
        }
        self.planes.wait_cleaned().await;
        Ok(())
    }

    /// Returns a Cluster that is being deleted, and whose control plane is not removed yet.
    async fn deleted_with_plane(&self, client: &kube::Client) -> Result<Option<String>, Error> {
        for key in clusters::deleting(client).await? {
            if self.planes.has(&key).await {
                return Ok(Some(key.name));
            }
        }
        Ok(None)
    }

    /// Starts another management cluster that shares the workload control planes, so that Clusters can be moved to it.
    pub async fn second_management(
        &self,
        options: &Options,
        progress: &dyn ProgressReporter,
    ) -> Result<Self, Error> {
        Self::start(self.planes.clone(), &self.assets, options, Network::default(), progress).await
    }

    async fn start(
        planes: Arc<Planes>,
        assets: &Assets,
        options: &Options,
        network: Network,
        progress: &dyn ProgressReporter,
    ) -> Result<Self, Error> {
        let folder = Folder::new(&options.dir);
        let lock = folder.lock()?;
        let authority = Authority::open(&options.dir.join("pki"), "chandler sandbox")?;

        progress.begin("starting the management cluster", None);
        let plane = PlaneOptions::full(MANAGEMENT, &folder.management(), MANAGEMENT_NODES);
        let management = Plane::start(assets, PlaneOptions { network, ..plane }).await?;
        progress.finish("starting the management cluster");

        progress.begin("starting Cluster API", None);
        let client = management.client_as("chandler-sandbox").await?;
        let home = folder.capi();
        let core = Core::start(assets, &management, &client, &authority, &home, RuntimeSdk::Enabled).await?;
        let provider = Provider::start(&client, planes.clone());
        clusters::apply_class(&client).await?;
        progress.finish("starting Cluster API");

        let sandbox = Self {
            folder,
            assets: assets.clone(),
            authority,
            management,
            core,
            provider,
            planes,
            nodes: options.nodes,
            _lock: lock,
        };
        sandbox.ensure_clusters(options.clusters).await?;
        Ok(sandbox)
    }

    /// Creates those of the first `count` clusters that do not exist.
    pub async fn ensure_clusters(&self, count: u32) -> Result<(), Error> {
        let client = self.management.client().await?;
        ensure_clusters(&client, count, self.nodes).await
    }

    /// Waits until the first `count` clusters are Available and their control planes run.
    pub async fn wait_ready(&self, count: u32, progress: &dyn ProgressReporter) -> Result<(), Error> {
        let client = self.management.client().await?;
        wait_ready(&client, count, progress).await?;
        // The status may be that of an earlier run, when the processes of this run have not started yet.
        for index in 0..count {
            let key = ClusterKey::new(clusters::NAMESPACE, &clusters::name(index));
            self.wait_plane(&key).await?;
        }
        Ok(())
    }

    /// Creates a Cluster of the sandbox's ClusterClass, waits until it is Available and returns its control plane.
    pub async fn create_cluster(
        &self,
        key: &ClusterKey,
        nodes: u32,
        labels: &Value,
    ) -> Result<Arc<Plane>, Error> {
        let client = self.management.client().await?;
        clusters::apply_cluster(&client, key, nodes, labels).await?;
        self.wait_cluster(key).await
    }

    /// Waits until a Cluster is Available and returns its control plane.
    pub async fn wait_cluster(&self, key: &ClusterKey) -> Result<Arc<Plane>, Error> {
        let client = self.management.client().await?;
        clusters::wait_available(&client, key, AVAILABLE_TIMEOUT).await?;
        self.wait_plane(key).await
    }

    async fn wait_plane(&self, key: &ClusterKey) -> Result<Arc<Plane>, Error> {
        let deadline = Instant::now() + AVAILABLE_TIMEOUT;
        loop {
            if let Some(plane) = self.planes.get(key).await {
                return Ok(plane);
            }
            if Instant::now() > deadline {
                return Err(Error::Clusters(clusters::Error::NotAvailable {
                    name: key.name.clone(),
                    timeout: AVAILABLE_TIMEOUT,
                    message: "its control plane does not belong to this sandbox".to_owned(),
                }));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn management(&self) -> &Plane {
        &self.management
    }

    pub fn assets(&self) -> &Assets {
        &self.assets
    }

    /// Returns the certificate authority for servers that run next to the sandbox, such as chart repositories.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the control plane of a Cluster, if it runs.
    pub async fn plane(&self, key: &ClusterKey) -> Option<Arc<Plane>> {
        self.planes.get(key).await
    }

    /// Returns an error with the end of the log if a process of the management cluster has exited.
    pub async fn check(&self) -> Result<(), Error> {
        self.management.check().await?;
        self.core.check().map_err(capi::Error::Process)?;
        Ok(())
    }

    /// Stops all processes in order and keeps the data.
    pub async fn down(self) {
        self.provider.stop().await;
        self.core.stop().await;
        self.planes.stop_all().await;
        self.management.stop().await;
        // Not required: readers also check whether the owner is running.
        let _ = fs::remove_file(self.folder.root.join("owner"));
    }
}

/// Creates those of the first `count` clusters that do not exist. Existing ones are left unchanged.
pub async fn ensure_clusters(client: &kube::Client, count: u32, nodes: u32) -> Result<(), Error> {
    let labels = json!({"environment": "sandbox"});
    let missing = (0..count).map(|index| {
        let labels = &labels;
        async move {
            let key = ClusterKey::new(clusters::NAMESPACE, &clusters::name(index));
            if clusters::exists(client, &key).await? {
                return Ok(());
            }
            clusters::apply_cluster(client, &key, nodes, labels).await
        }
    });
    try_join_all(missing).await?;
    Ok(())
}

/// Waits until the first `count` clusters are Available.
pub async fn wait_ready(
    client: &kube::Client,
    count: u32,
    progress: &dyn ProgressReporter,
) -> Result<(), Error> {
    let total = usize::try_from(count).unwrap_or(usize::MAX);
    for index in 0..count {
        let name = clusters::name(index);
        let step = format!("waiting for cluster {name}");
        let position = usize::try_from(index).unwrap_or(usize::MAX).saturating_add(1);
        progress.begin(&step, Some((position, total)));
        let key = ClusterKey::new(clusters::NAMESPACE, &name);
        clusters::wait_available(client, &key, AVAILABLE_TIMEOUT).await?;
        progress.finish(&step);
    }
    Ok(())
}
