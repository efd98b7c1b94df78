//! Fixtures for tests: control planes of their own, and a sandbox that the tests of a process share.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::assets::{self, Assets, Binary, KubernetesVersion};
use crate::certificates::Authority;
use crate::clusters;
use crate::plane::{self, Network, Plane, PlaneOptions};
use crate::process::Identity;
use crate::progress::{self, Silent};
use crate::provider::ClusterKey;
use crate::sandbox::{self, Sandbox};
use crate::test_record::{self, Record};

/// An error while creating a fixture.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Assets(#[from] assets::Error),
    #[error(transparent)]
    Plane(#[from] plane::Error),
    #[error("cannot create the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    #[error("cannot start the runtime of the shared sandbox: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("the shared sandbox failed: {0}")]
    Shared(String),
    #[error("cannot create the namespace {name}: {source}")]
    Namespace { name: String, source: Box<kube::Error> },
    #[error("{MANAGEMENT_ADDRESS_VARIABLE} is not an address: {0}")]
    Address(String),
    #[error("cannot identify this process: is /proc mounted?")]
    Identity,
}

/// The address on which the management API server of [`sandbox`] listens, instead of loopback.
pub const MANAGEMENT_ADDRESS_VARIABLE: &str = "CHANDLER_MANAGEMENT_ADDRESS";

/// How long the deletion of Clusters may take.
const CLEAN_TIMEOUT: Duration = Duration::from_mins(2);

static ASSETS: OnceCell<Assets> = OnceCell::const_new();
static SANDBOX: OnceCell<Shared> = OnceCell::const_new();
static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
static COUNTER: AtomicU32 = AtomicU32::new(1);

/// Installs ring as the TLS crypto provider of the process. May be called more than once.
pub fn install_crypto() {
    // Fails if a provider is installed already, which is also ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns the programs that most tests need. Finds or builds them once per process.
pub async fn assets() -> Result<&'static Assets, Error> {
    install_crypto();
    let is_needed = |binary: &Binary| {
        !Binary::PROVIDER_INSTALLERS.contains(binary) && !Binary::ON_DEMAND.contains(binary)
    };
    let binaries: Vec<_> = Binary::ALL.into_iter().filter(is_needed).collect();
    ASSETS
        .get_or_try_init(|| async { Ok(Assets::ensure(&binaries, progress::display().as_ref()).await?) })
        .await
}

/// Finds or builds one of [`Binary::PROVIDER_INSTALLERS`] or [`Binary::ON_DEMAND`].
pub async fn installer(binary: Binary) -> Result<PathBuf, Error> {
    let assets = Assets::ensure(&[binary], progress::display().as_ref()).await?;
    Ok(assets.path(binary).to_owned())
}

/// Finds or builds the programs of another Kubernetes version. Tests that upgrade call it before they start to measure
/// time.
pub async fn prepare(version: KubernetesVersion) -> Result<(), Error> {
    assets().await?.with_version(version, progress::display().as_ref()).await?;
    Ok(())
}

/// Starts a control plane of etcd and API server only, which is the fastest to start.
pub async fn bare_plane() -> Result<Plane, Error> {
    let dir = fresh_dir("bare").await?;
    Ok(Plane::start(assets().await?, PlaneOptions::bare("bare", &dir)).await?)
}

/// Starts a control plane with controllers and Nodes, on which Deployments become available.
pub async fn full_plane(nodes: u32) -> Result<Plane, Error> {
    let dir = fresh_dir("full").await?;
    let plane = Plane::start(assets().await?, PlaneOptions::full("full", &dir, nodes)).await?;
    plane.wait_nodes_ready().await?;
    Ok(plane)
}

/// Returns the sandbox that all tests of this process share: a management cluster with Cluster API, without workload
/// clusters.
///
/// It has its own Tokio runtime, because the runtime of a test ends with the test.
pub async fn sandbox() -> Result<SharedSandbox, Error> {
    let assets = assets().await?;
    let shared = SANDBOX.get_or_try_init(|| start_shared(assets)).await?;
    Ok(SharedSandbox { inner: shared })
}

async fn start_shared(assets: &'static Assets) -> Result<Shared, Error> {
    let dir = fresh_dir("sandbox").await?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let options = sandbox::Options { dir, clusters: 0, nodes: 1 };
    let mut network = Network::default();
    if let Ok(address) = std::env::var(MANAGEMENT_ADDRESS_VARIABLE) {
        network.address = address.parse().map_err(|_| Error::Address(address))?;
    }
    let sandbox = runtime
        .spawn(async move { Sandbox::up_with_pool(assets, &options, network, &Silent).await })
        .await
        .map_err(|error| Error::Shared(error.to_string()))??;
    Ok(Shared { sandbox: Arc::new(sandbox), runtime })
}

struct Shared {
    sandbox: Arc<Sandbox>,
    runtime: Runtime,
}

/// A handle of the shared sandbox.
#[derive(Clone, Copy)]
pub struct SharedSandbox {
    inner: &'static Shared,
}

impl SharedSandbox {
    pub fn management(&self) -> &'static Plane {
        self.inner.sandbox.management()
    }

    pub fn authority(&self) -> &'static Authority {
        self.inner.sandbox.authority()
    }

    pub fn assets(&self) -> &'static Assets {
        self.inner.sandbox.assets()
    }

    /// Makes sure that the control planes of a namespace's Clusters are not used again: its test has failed.
    pub fn discard(&self, namespace: &str) {
        self.inner.sandbox.discard(namespace);
    }

    /// Waits until the Clusters of ended tests are deleted and their control planes cleaned, which takes CPU time.
    pub async fn wait_cleaned(&self) -> Result<(), Error> {
        self.on_runtime(|sandbox| async move { sandbox.wait_cleaned(CLEAN_TIMEOUT).await }).await
    }

    /// Creates a namespace with a unique name on the management cluster.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let name = unique_name(prefix);
        let namespaces: Api<Namespace> = Api::all(self.management().client().await?);
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(|source| Error::Namespace { name: name.clone(), source: Box::new(source) })?;
        Ok(name)
    }

    /// Creates a Cluster without a topology, waits until it is Available and returns its control plane.
    pub async fn cluster(
        &self,
        namespace: &str,
        name: &str,
        nodes: u32,
        labels: &[(&str, &str)],
    ) -> Result<Arc<Plane>, Error> {
        let (key, labels) = (ClusterKey::new(namespace, name), object(labels));
        let create = |sandbox: Arc<Sandbox>| async move {
            let client = sandbox.management().client().await?;
            clusters::apply_plain_cluster(&client, &key, nodes, &labels).await?;
            sandbox.wait_cluster(&key).await
        };
        self.timed(create).await
    }

    /// Like [`Self::cluster`], with a topology of the sandbox's ClusterClass. Cluster API does more than twice as
    /// much for it, so only tests of topologies, of upgrades and of hooks have one.
    pub async fn topology_cluster(
        &self,
        namespace: &str,
        name: &str,
        nodes: u32,
        labels: &[(&str, &str)],
    ) -> Result<Arc<Plane>, Error> {
        let (key, labels) = (ClusterKey::new(namespace, name), object(labels));
        self.timed(|sandbox| async move { sandbox.create_cluster(&key, nodes, &labels).await }).await
    }

    /// Creates a Cluster, and records how long it took until it was Available.
    async fn timed<F>(&self, create: impl FnOnce(Arc<Sandbox>) -> F) -> Result<Arc<Plane>, Error>
    where
        F: Future<Output = Result<Arc<Plane>, sandbox::Error>> + Send + 'static,
    {
        let start = Instant::now();
        let plane = self.on_runtime(create).await?;
        test_record::append(&Record::Cluster { available_after_millis: start.elapsed().as_millis() });
        Ok(plane)
    }

    /// Waits until a Cluster that the test has applied is Available and returns its control plane.
    pub async fn wait_cluster(&self, namespace: &str, name: &str) -> Result<Arc<Plane>, Error> {
        let key = ClusterKey::new(namespace, name);
        self.on_runtime(|sandbox| async move { sandbox.wait_cluster(&key).await }).await
    }

    /// Runs work on the runtime of the shared sandbox.
    async fn on_runtime<T, F>(&self, work: impl FnOnce(Arc<Sandbox>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, sandbox::Error>> + Send + 'static,
        T: Send + 'static,
    {
        let work = work(self.inner.sandbox.clone());
        let result = self.inner.runtime.spawn(work).await;
        Ok(result.map_err(|error| Error::Shared(error.to_string()))??)
    }
}

fn object(labels: &[(&str, &str)]) -> Value {
    labels.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect()
}

/// Creates an empty folder, which a later test process removes.
pub async fn fresh_dir(prefix: &str) -> Result<PathBuf, Error> {
    let base = FOLDER.get_or_try_init(|| async { process_folder() }).await?;
    let dir = base.join(unique_name(prefix));
    fs::create_dir_all(&dir).map_err(|source| Error::Folder { path: dir.clone(), source })?;
    Ok(dir)
}

/// Returns a name that no other test of this process has.
fn unique_name(prefix: &str) -> String {
    let name = format!("{prefix}-{}", COUNTER.fetch_add(1, Ordering::Relaxed));
    let (test, process) = (test_record::current_test(), std::process::id());
    test_record::append(&Record::Name { test: &test, process, name: &name });
    name
}

/// Creates the folder of this process. Also removes those of processes that have exited, because statics are never
/// dropped.
fn process_folder() -> Result<PathBuf, Error> {
    let base = std::env::temp_dir().join("chandler-tests");
    let owner = Identity::current().ok_or(Error::Identity)?;
    let folder = base.join(owner.pid().to_string());
    remove_abandoned(&base);
    let failed = |source| Error::Folder { path: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(failed)?;
    fs::write(folder.join("owner"), owner.to_string()).map_err(failed)?;
    Ok(folder)
}

fn remove_abandoned(base: &std::path::Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let abandoned = fs::read_to_string(folder.join("owner"))
            .ok()
            .and_then(|text| text.parse::<Identity>().ok())
            .is_some_and(|owner| !owner.is_running());
        if abandoned {
            // Another test process may be removing it too.
            let _ = fs::remove_dir_all(&folder);
        }
    }
}
