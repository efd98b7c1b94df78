//! The programs the sandbox runs: found where the environment points, in the cache, or built from the Go module proxy.

mod cache;
mod catalog;
mod go;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use self::cache::Cache;
pub use self::catalog::{Binary, KubernetesVersion, UnsupportedVersion};
use crate::progress::Progress;

/// A folder with all programs, and `cluster-api/config` as in the Cluster API module.
pub const ASSETS_VARIABLE: &str = "CHANDLER_ASSETS";
/// A folder as `setup-envtest` makes it: etcd, kube-apiserver and kubectl.
pub const KUBEBUILDER_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// Why a program could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("neither XDG_CACHE_HOME nor HOME is set: set one, so that built programs have a place")]
    NoCacheDirectory,
    #[error(
        "`go` was not found: install Go from https://go.dev/dl and put it on PATH, or point {ASSETS_VARIABLE} at a folder \
         with the programs"
    )]
    GoMissing,
    #[error(
        "Go {needed} is needed, {found} is too old: install a newer one from https://go.dev/dl, or unset GOTOOLCHAIN so that \
         Go fetches it by itself"
    )]
    GoTooOld { found: String, needed: String },
    #[error("`go` did not start: {source}")]
    RunGo { source: std::io::Error },
    #[error(
        "the disk is full: free 4 GiB where Go keeps its caches (`go env GOCACHE GOMODCACHE`) and start again"
    )]
    DiskFull,
    #[error("{} has {free_mib} MiB free, building needs {needed_mib}: free some and start again", path.display())]
    LittleSpace { path: PathBuf, free_mib: u64, needed_mib: u64 },
    #[error(
        "Go modules could not be downloaded: check the network, or set GOPROXY to a module proxy you can reach; what was \
         finished is kept\n{output}"
    )]
    Network { output: String },
    #[error("`go {command}` failed:\n{output}")]
    GoFailed { command: String, output: String },
    #[error("`go mod download -json` answered in a way this version does not know: {source}")]
    ReadModuleFolder { source: serde_json::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot lock {}: {source}", path.display())]
    Lock { path: PathBuf, source: std::io::Error },
}

/// Where each program is.
#[derive(Debug, Clone)]
pub struct Assets {
    paths: BTreeMap<Binary, PathBuf>,
    capi_config: PathBuf,
    kubernetes: KubernetesVersion,
}

impl Assets {
    /// Finds the programs, building what is nowhere to be found.
    pub async fn ensure(binaries: &[Binary], progress: &dyn Progress) -> Result<Self, Error> {
        Self::ensure_version(KubernetesVersion::default(), binaries, progress).await
    }

    /// As [`Assets::ensure`], for planes of the given Kubernetes version.
    pub async fn ensure_version(
        kubernetes: KubernetesVersion,
        binaries: &[Binary],
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let cache = Cache::open(kubernetes)?;
        let provided = Provided::from_environment();
        let mut paths = BTreeMap::new();
        let mut missing = Vec::new();
        for binary in binaries {
            if let Some(path) = provided.find(*binary, kubernetes).await {
                paths.insert(*binary, path);
            } else {
                if !cache.is_complete(*binary) {
                    missing.push(*binary);
                }
                paths.insert(*binary, cache.path(*binary));
            }
        }
        if !missing.is_empty() {
            cache.build(&missing, progress).await?;
        }
        Ok(Self {
            paths,
            capi_config: provided.capi_config().unwrap_or_else(|| cache.capi_config()),
            kubernetes,
        })
    }

    /// The program's path; a program that was not asked for is looked up on `PATH`.
    pub fn path(&self, binary: Binary) -> &Path {
        self.paths.get(&binary).map_or_else(|| Path::new(binary.file_name()), PathBuf::as_path)
    }

    /// The `config` folder of the Cluster API module: `crd/bases` and `webhook/manifests.yaml`.
    pub fn capi_config(&self) -> &Path {
        &self.capi_config
    }

    pub fn kubernetes(&self) -> KubernetesVersion {
        self.kubernetes
    }
}

/// Folders the environment points at, which spare us building.
struct Provided {
    ours: Option<PathBuf>,
    kubebuilder: Option<PathBuf>,
}

impl Provided {
    fn from_environment() -> Self {
        let folder = |variable| env::var_os(variable).map(PathBuf::from);
        Self { ours: folder(ASSETS_VARIABLE), kubebuilder: folder(KUBEBUILDER_VARIABLE) }
    }

    async fn find(&self, binary: Binary, kubernetes: KubernetesVersion) -> Option<PathBuf> {
        let in_folder = |folder: &Option<PathBuf>| {
            let path = folder.as_ref()?.join(binary.file_name());
            path.is_file().then_some(path)
        };
        if let Some(path) = in_folder(&self.ours) {
            return Some(path);
        }
        let path = in_folder(&self.kubebuilder)?;
        let fits = binary != Binary::KubeApiserver || is_minor(&path, kubernetes).await;
        fits.then_some(path)
    }

    fn capi_config(&self) -> Option<PathBuf> {
        let config = self.ours.as_ref()?.join("cluster-api/config");
        config.is_dir().then_some(config)
    }
}

/// A foreign kube-apiserver of another minor would make planes lie about their version.
async fn is_minor(apiserver: &Path, kubernetes: KubernetesVersion) -> bool {
    let output = tokio::process::Command::new(apiserver).arg("--version").output().await;
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).contains(&format!(" v1.{}.", kubernetes.minor()))
    })
}
