//! The whole sandbox: a management plane with the Cluster API core and our provider, and the clusters made on it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::assets::Assets;
use crate::capi::{self, Core};
use crate::certificates::{self, Authority};
use crate::plane::{self, Plane, PlaneOptions};
use crate::process::Identity;
use crate::progress::Progress;
use crate::provider::{ClusterKey, Planes, Provider};
use crate::{clusters, kubeconfig, process};

/// The name under which the management plane is known beside its clusters.
pub const MANAGEMENT: &str = "management";

const MANAGEMENT_NODES: u32 = 1;
const AVAILABLE_LIMIT: Duration = Duration::from_mins(3);

/// Why a sandbox is not up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("another process owns the sandbox in {}: stop that one first, or choose another folder", dir.display())]
    Owned { dir: PathBuf },
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error("the management plane: {0}")]
    Management(#[from] plane::Error),
    #[error(transparent)]
    Capi(#[from] capi::Error),
    #[error(transparent)]
    Clusters(#[from] clusters::Error),
}

/// What a sandbox is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Everything it keeps; the same folder again brings the same clusters back.
    pub dir: PathBuf,
    /// How many clusters there are to be at least.
    pub clusters: u32,
    /// How many Nodes each new one has.
    pub nodes: u32,
}

/// Where things are in a sandbox's folder.
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

    /// The process that runs the sandbox, if one does.
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

    /// The folder of a plane by the name a person uses: `management`, `alpha` or `namespace/name`.
    pub fn plane(&self, name: &str) -> PathBuf {
        if name == MANAGEMENT {
            return self.management();
        }
        let (namespace, name) = name.split_once('/').unwrap_or((clusters::NAMESPACE, name));
        Planes::folder(&self.planes(), &ClusterKey::new(namespace, name))
    }

    /// The owner's own output.
    pub fn owner_log(&self) -> PathBuf {
        self.root.join("logs/owner.log")
    }

    /// Whether this owner has brought all it was asked for up.
    pub fn is_ready(&self, owner: &Identity) -> bool {
        fs::read_to_string(self.root.join("ready")).is_ok_and(|ready| ready == owner.to_string())
    }

    /// Said by the owner when all it was asked for is up.
    pub fn mark_ready(&self) -> Result<(), Error> {
        let path = self.root.join("ready");
        let owner = Identity::current().map(|owner| owner.to_string()).unwrap_or_default();
        fs::write(&path, owner).map_err(|source| Error::Folder { path, source })
    }

    /// A client of the management plane.
    pub async fn management_client(&self) -> Result<kube::Client, Error> {
        let path = self.management().join("kubeconfig");
        let yaml = fs::read_to_string(&path).map_err(|source| Error::Folder { path, source })?;
        Ok(kubeconfig::client(&yaml).await.map_err(plane::Error::Kubeconfig)?)
    }

    /// Ends what a killed owner may have left behind.
    pub fn end_orphans(&self) {
        process::end_orphans(&self.management());
        process::end_orphans(&self.capi());
        for (_, plane) in Planes::folders(&self.planes()) {
            process::end_orphans(&plane);
        }
    }

    /// Removes what a sandbox keeps, and the folder too if that leaves it empty.
    pub fn remove(&self) -> Result<(), Error> {
        for folder in [MANAGEMENT, "planes", "capi", "pki", "logs"] {
            removed(fs::remove_dir_all(self.root.join(folder)), &self.root)?;
        }
        for file in ["owner", "ready", "lock"] {
            removed(fs::remove_file(self.root.join(file)), &self.root)?;
        }
        // Whatever else is in there is not ours.
        let _ = fs::remove_dir(&self.root);
        Ok(())
    }

    pub(crate) fn capi(&self) -> PathBuf {
        self.root.join("capi")
    }

    fn own(&self) -> Result<File, Error> {
        let failed = |source| Error::Folder { path: self.root.clone(), source };
        fs::create_dir_all(self.capi()).map_err(failed)?;
        let lock = File::create(self.root.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Owned { dir: self.root.clone() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        if let Some(owner) = Identity::current() {
            fs::write(self.root.join("owner"), owner.to_string()).map_err(failed)?;
        }
        Ok(lock)
    }
}

fn removed(result: io::Result<()>, path: &Path) -> Result<(), Error> {
    match result {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Folder { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// A running sandbox. Drop ends its processes; [`Sandbox::down`] does so in order.
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
    /// Brings everything up; returns when the management plane takes Clusters. See [`Sandbox::wait_ready`].
    pub async fn up(assets: &Assets, options: &Options, progress: &dyn Progress) -> Result<Self, Error> {
        let planes = Arc::new(Planes::new(assets, &Folder::new(&options.dir).planes()));
        Self::up_over(planes, assets, options, progress).await
    }

    /// Another management plane over the same workload planes: a Cluster that is moved there finds its own.
    pub async fn beside(&self, options: &Options, progress: &dyn Progress) -> Result<Self, Error> {
        Self::up_over(self.planes.clone(), &self.assets, options, progress).await
    }

    async fn up_over(
        planes: Arc<Planes>,
        assets: &Assets,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let folder = Folder::new(&options.dir);
        let lock = folder.own()?;
        let authority = Authority::open(&options.dir.join("pki"), "chandler sandbox")?;

        progress.begin("starting the management plane", None);
        let plane = PlaneOptions::full(MANAGEMENT, &folder.management(), MANAGEMENT_NODES);
        let management = Plane::start(assets, plane).await?;
        progress.finish("starting the management plane");

        progress.begin("starting the Cluster API core", None);
        let client = management.client_as("chandler-sandbox").await?;
        let core = Core::start(assets, &management, &client, &authority, &folder.capi()).await?;
        let provider = Provider::start(&client, planes.clone());
        clusters::apply_class(&client).await?;
        progress.finish("starting the Cluster API core");

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

    /// Makes the first `count` clusters exist.
    pub async fn ensure_clusters(&self, count: u32) -> Result<(), Error> {
        let client = self.management.client().await?;
        ensure_clusters(&client, count, self.nodes).await
    }

    /// Returns when the first `count` clusters are Available and every plane of an earlier run is back.
    pub async fn wait_ready(&self, count: u32, progress: &dyn Progress) -> Result<(), Error> {
        let client = self.management.client().await?;
        wait_ready(&client, count, progress).await?;
        // What an earlier run has left in status says nothing about the processes of this one.
        for index in 0..count {
            let key = ClusterKey::new(clusters::NAMESPACE, &clusters::name(index));
            self.wait_plane(&key).await?;
        }
        Ok(())
    }

    /// Creates a Cluster from the sandbox's class and returns its plane when it is Available.
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

    /// Returns the plane of a Cluster when that is Available.
    pub async fn wait_cluster(&self, key: &ClusterKey) -> Result<Arc<Plane>, Error> {
        let client = self.management.client().await?;
        clusters::wait_available(&client, key, AVAILABLE_LIMIT).await?;
        self.wait_plane(key).await
    }

    async fn wait_plane(&self, key: &ClusterKey) -> Result<Arc<Plane>, Error> {
        let deadline = Instant::now() + AVAILABLE_LIMIT;
        loop {
            if let Some(plane) = self.planes.get(key).await {
                return Ok(plane);
            }
            if Instant::now() > deadline {
                return Err(Error::Clusters(clusters::Error::NotAvailable {
                    name: key.name.clone(),
                    limit: AVAILABLE_LIMIT,
                    why: "its control plane is not one of this sandbox".to_owned(),
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

    /// Signs for servers beside the sandbox, such as chart repositories.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The plane of a Cluster, if it runs.
    pub async fn plane(&self, key: &ClusterKey) -> Option<Arc<Plane>> {
        self.planes.get(key).await
    }

    /// An error that quotes the log of a process of the management side that has ended.
    pub async fn check(&self) -> Result<(), Error> {
        self.management.check().await?;
        self.core.check().map_err(capi::Error::Process)?;
        Ok(())
    }

    /// Stops everything in order; the data stays.
    pub async fn down(self) {
        self.provider.stop().await;
        self.core.stop().await;
        self.planes.stop_all().await;
        self.management.stop().await;
        // An owner that is gone is recognised without this too.
        let _ = fs::remove_file(self.folder.root.join("owner"));
    }
}

/// Makes the first `count` clusters exist, through any client of the management plane; existing ones stay as they are.
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

/// Returns when the first `count` clusters are Available.
pub async fn wait_ready(client: &kube::Client, count: u32, progress: &dyn Progress) -> Result<(), Error> {
    let total = usize::try_from(count).unwrap_or(usize::MAX);
    for index in 0..count {
        let name = clusters::name(index);
        let step = format!("waiting for cluster {name}");
        let position = usize::try_from(index).unwrap_or(usize::MAX).saturating_add(1);
        progress.begin(&step, Some((position, total)));
        let key = ClusterKey::new(clusters::NAMESPACE, &name);
        clusters::wait_available(client, &key, AVAILABLE_LIMIT).await?;
        progress.finish(&step);
    }
    Ok(())
}
