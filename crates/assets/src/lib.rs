//! The programs that the sandbox runs: found where the environment points, in the cache, or built from Go modules.

mod cache;
mod catalog;
mod go;
pub mod progress;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use self::cache::Cache;
pub use self::catalog::{Binary, KubernetesVersion, UnsupportedVersion};
pub use self::go::dependency_folder;
use crate::progress::Progress;

/// A folder with all programs, `cluster-api/config` as in the Cluster API module, and kwok's stages in `kwok-stages.yaml`. API servers of other versions are in
/// folders named as `kubernetes-1.35`.
pub const ASSETS_VARIABLE: &str = "CHANDLER_ASSETS";
/// A folder as `setup-envtest` makes it: etcd, kube-apiserver and kubectl.
pub const KUBEBUILDER_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// Why a program is unavailable.
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
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
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
    kwok_stages: PathBuf,
    kubernetes: KubernetesVersion,
}

impl Assets {
    /// Finds the programs and builds missing ones.
    pub async fn ensure(binaries: &[Binary], progress: &dyn Progress) -> Result<Self, Error> {
        Self::ensure_version(KubernetesVersion::default(), binaries, progress).await
    }

    /// As [`Assets::ensure`], for planes of the given Kubernetes version.
    pub async fn ensure_version(
        kubernetes: KubernetesVersion,
        binaries: &[Binary],
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let Located { cache, assets, missing } = Located::look(kubernetes, binaries).await?;
        if !missing.is_empty() {
            cache.build(&missing, progress).await?;
        }
        Ok(assets)
    }

    /// The same programs with the API server of another version, built if it is missing.
    pub async fn with_version(
        &self,
        kubernetes: KubernetesVersion,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let other = Self::ensure_version(kubernetes, &Binary::PER_VERSION, progress).await?;
        Ok(self.with_api_server(other))
    }

    /// As [`Assets::with_version`]; `None` if something would have to be built.
    pub async fn find_version(&self, kubernetes: KubernetesVersion) -> Result<Option<Self>, Error> {
        if kubernetes == self.kubernetes {
            return Ok(Some(self.clone()));
        }
        let located = Located::look(kubernetes, &Binary::PER_VERSION).await?;
        Ok(located.missing.is_empty().then(|| self.with_api_server(located.assets)))
    }

    fn with_api_server(&self, other: Self) -> Self {
        let mut paths = self.paths.clone();
        paths.extend(other.paths);
        Self { paths, kubernetes: other.kubernetes, ..self.clone() }
    }

    /// Finds or builds every program of every Kubernetes version, so that nothing has to be built later.
    pub async fn ensure_every_version(progress: &dyn Progress) -> Result<(), Error> {
        let default = KubernetesVersion::default();
        Self::ensure_version(default, &Binary::ALL, progress).await?;
        for version in KubernetesVersion::SUPPORTED.into_iter().filter(|version| *version != default) {
            Self::ensure_version(version, &Binary::PER_VERSION, progress).await?;
        }
        Ok(())
    }

    /// The program's path; a program that was not asked for is looked up on `PATH`.
    pub fn path(&self, binary: Binary) -> &Path {
        self.paths.get(&binary).map_or_else(|| Path::new(binary.file_name()), PathBuf::as_path)
    }

    /// The `config` folder of the Cluster API module: `crd/bases` and `webhook/manifests.yaml`.
    pub fn capi_config(&self) -> &Path {
        &self.capi_config
    }

    /// The file with the stages that kwok runs.
    pub fn kwok_stages(&self) -> &Path {
        &self.kwok_stages
    }

    pub fn kubernetes(&self) -> KubernetesVersion {
        self.kubernetes
    }
}

/// Where programs are, before anything is built.
struct Located {
    cache: Cache,
    assets: Assets,
    missing: Vec<Binary>,
}

impl Located {
    async fn look(kubernetes: KubernetesVersion, binaries: &[Binary]) -> Result<Self, Error> {
        let cache = Cache::open(kubernetes)?;
        let provided = Provided::from_environment();
        let wanted = wanted_version(kubernetes, binaries);
        let mut paths = BTreeMap::new();
        let mut missing = Vec::new();
        for binary in binaries {
            if let Some(path) = provided.find(*binary, kubernetes, &wanted).await {
                paths.insert(*binary, path);
            } else {
                if !cache.is_complete(*binary) {
                    missing.push(*binary);
                }
                paths.insert(*binary, cache.path(*binary));
            }
        }
        let capi_config = provided.capi_config().unwrap_or_else(|| cache.capi_config());
        let kwok_stages = provided.kwok_stages().unwrap_or_else(|| cache.kwok_stages());
        Ok(Self { cache, assets: Assets { paths, capi_config, kwok_stages, kubernetes }, missing })
    }
}

/// The version that a provided program must report: to the patch for the clusters of Cluster API, which are compared with
/// the version asked for; only the minor for a bare API server.
fn wanted_version(kubernetes: KubernetesVersion, binaries: &[Binary]) -> String {
    let of_cluster = binaries.contains(&Binary::KubeControllerManager);
    if of_cluster || kubernetes != KubernetesVersion::default() {
        format!("Kubernetes {kubernetes}")
    } else {
        format!("Kubernetes v1.{}.", kubernetes.minor())
    }
}

/// Folders with prebuilt programs that the environment names.
struct Provided {
    ours: Option<PathBuf>,
    kubebuilder: Option<PathBuf>,
}

impl Provided {
    fn from_environment() -> Self {
        let folder = |variable| env::var_os(variable).map(PathBuf::from);
        Self { ours: folder(ASSETS_VARIABLE), kubebuilder: folder(KUBEBUILDER_VARIABLE) }
    }

    async fn find(&self, binary: Binary, kubernetes: KubernetesVersion, wanted: &str) -> Option<PathBuf> {
        let of_version = self.ours.as_ref().map(|ours| ours.join(kubernetes.folder()));
        for folder in [&of_version, &self.ours, &self.kubebuilder].into_iter().flatten() {
            let path = folder.join(binary.file_name());
            let fits = !Binary::CONTROL_PLANE.contains(&binary) || is_version(&path, wanted).await;
            if path.is_file() && fits {
                return Some(path);
            }
        }
        None
    }

    fn kwok_stages(&self) -> Option<PathBuf> {
        let stages = self.ours.as_ref()?.join("kwok-stages.yaml");
        stages.is_file().then_some(stages)
    }

    fn capi_config(&self) -> Option<PathBuf> {
        let config = self.ours.as_ref()?.join("cluster-api/config");
        config.is_dir().then_some(config)
    }
}

/// A foreign program of another version would make planes lie about theirs.
async fn is_version(program: &Path, wanted: &str) -> bool {
    let output = tokio::process::Command::new(program).arg("--version").output().await;
    output.is_ok_and(|output| {
        let reported = String::from_utf8_lossy(&output.stdout);
        let reported = reported.trim();
        reported == wanted || (wanted.ends_with('.') && reported.starts_with(wanted))
    })
}
