//! What tests call: planes of their own, and one sandbox that the tests of a process share.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::assets::{self, Assets, Binary, KubernetesVersion};
use crate::certificates::Authority;
use crate::plane::{self, Plane, PlaneOptions};
use crate::process::Identity;
use crate::progress::{self, Silent};
use crate::provider::ClusterKey;
use crate::sandbox::{self, Sandbox};

/// Why a test did not get what it asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Assets(#[from] assets::Error),
    #[error(transparent)]
    Plane(#[from] plane::Error),
    #[error("cannot make a folder for tests at {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    #[error("the runtime of the shared sandbox does not start: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("the shared sandbox failed: {0}")]
    Shared(String),
    #[error("cannot create the namespace {name}: {source}")]
    Namespace { name: String, source: Box<kube::Error> },
    #[error("cannot tell this process from others: is /proc mounted?")]
    Identity,
}

static ASSETS: OnceCell<Assets> = OnceCell::const_new();
static SANDBOX: OnceCell<Shared> = OnceCell::const_new();
static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
static COUNTER: AtomicU32 = AtomicU32::new(1);

/// Makes ring the process-wide choice; may be called any number of times.
pub fn install_crypto() {
    // Whoever installed one before us has made the same choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The programs that most tests need, found or built once per process.
pub async fn assets() -> Result<&'static Assets, Error> {
    install_crypto();
    ASSETS
        .get_or_try_init(|| async { Ok(Assets::ensure(&Binary::USUAL, progress::display().as_ref()).await?) })
        .await
}

/// One of the programs that install providers, found or built.
pub async fn installer(binary: Binary) -> Result<PathBuf, Error> {
    let assets = Assets::ensure(&[binary], progress::display().as_ref()).await?;
    Ok(assets.path(binary).to_owned())
}

/// The control plane of another version, found or built: for tests that upgrade, before the clock runs.
pub async fn prepare(version: KubernetesVersion) -> Result<(), Error> {
    assets().await?.with_version(version, progress::display().as_ref()).await?;
    Ok(())
}

/// A plane of the test's own, without controllers: the quickest real API server.
pub async fn bare_plane() -> Result<Plane, Error> {
    let dir = fresh_dir("bare").await?;
    Ok(Plane::start(assets().await?, PlaneOptions::bare("bare", &dir)).await?)
}

/// A plane of the test's own on which Deployments become Ready.
pub async fn full_plane(nodes: u32) -> Result<Plane, Error> {
    let dir = fresh_dir("full").await?;
    let plane = Plane::start(assets().await?, PlaneOptions::full("full", &dir, nodes)).await?;
    plane.wait_nodes_ready().await?;
    Ok(plane)
}

/// The sandbox all tests of this process share: a management plane with the Cluster API core, and no clusters.
///
/// It lives on a runtime of its own, because each test's runtime ends with the test.
pub async fn sandbox() -> Result<SharedSandbox, Error> {
    let assets = assets().await?;
    let shared = SANDBOX.get_or_try_init(|| start_shared(assets)).await?;
    Ok(SharedSandbox { inner: shared })
}

async fn start_shared(assets: &'static Assets) -> Result<Shared, Error> {
    let dir = fresh_dir("sandbox").await?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let options = sandbox::Options { dir, clusters: 0, nodes: 1 };
    let sandbox = runtime
        .spawn(async move { Sandbox::up(assets, &options, &Silent).await })
        .await
        .map_err(|error| Error::Shared(error.to_string()))??;
    Ok(Shared { sandbox: Arc::new(sandbox), runtime })
}

struct Shared {
    sandbox: Arc<Sandbox>,
    runtime: Runtime,
}

/// The shared sandbox as a test sees it.
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

    /// A namespace of the test's own on the management plane.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let name = format!("{prefix}-{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        let namespaces: Api<Namespace> = Api::all(self.management().client().await?);
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(|source| Error::Namespace { name: name.clone(), source: Box::new(source) })?;
        Ok(name)
    }

    /// A Cluster of the test's own, made by the Cluster API, and its plane once it is Available.
    pub async fn cluster(
        &self,
        namespace: &str,
        name: &str,
        nodes: u32,
        labels: &[(&str, &str)],
    ) -> Result<Arc<Plane>, Error> {
        let key = ClusterKey::new(namespace, name);
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.on_its_runtime(|sandbox| async move {
            sandbox.create_cluster(&key, nodes, &serde_json::json!(labels)).await
        })
        .await
    }

    /// The plane of a Cluster the test has applied itself, once it is Available.
    pub async fn wait_cluster(&self, namespace: &str, name: &str) -> Result<Arc<Plane>, Error> {
        let key = ClusterKey::new(namespace, name);
        self.on_its_runtime(|sandbox| async move { sandbox.wait_cluster(&key).await }).await
    }

    async fn on_its_runtime<T, F>(&self, work: impl FnOnce(Arc<Sandbox>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, sandbox::Error>> + Send + 'static,
        T: Send + 'static,
    {
        let work = work(self.inner.sandbox.clone());
        let done = self.inner.runtime.spawn(work).await;
        Ok(done.map_err(|error| Error::Shared(error.to_string()))??)
    }
}

/// An empty folder that a later test process removes.
pub async fn fresh_dir(prefix: &str) -> Result<PathBuf, Error> {
    let base = FOLDER.get_or_try_init(|| async { process_folder() }).await?;
    let dir = base.join(format!("{prefix}-{}", COUNTER.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&dir).map_err(|source| Error::Folder { path: dir.clone(), source })?;
    Ok(dir)
}

/// Statics are never dropped, so each test process clears away what ended ones have left.
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
