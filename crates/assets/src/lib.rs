//! The programs that the sandbox runs. They come from folders that environment variables name, from the cache, from their
//! publishers, or are built from Go modules.

mod build;
mod cache;
mod catalog;
mod digest;
mod download;
mod go;
mod pace;
pub mod progress;
mod released;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

pub use self::build::{Build, Builder};
use self::cache::Cache;
pub use self::cache::cache_folder;
pub use self::catalog::{Binary, KubernetesVersion, UnsupportedVersion};
pub use self::download::{BUILD_VARIABLE, MIRROR_VARIABLE};
pub use self::go::{dependency_folder, less_garbage_collection};
pub use self::released::Released;
use crate::progress::ProgressReporter;

/// Names a folder with prebuilt programs, the `config` folder of the Cluster API module as `cluster-api/config`, and
/// kwok's stages as `kwok-stages.yaml`. Programs of other Kubernetes versions are in subfolders such as
/// `kubernetes-1.35`.
pub const ASSETS_VARIABLE: &str = "CHANDLER_ASSETS";
/// The file with kwok's stages in such a folder.
const KWOK_STAGES_FILE: &str = "kwok-stages.yaml";
/// The folder with Cluster API's manifests in such a folder.
const CAPI_CONFIG: &str = "cluster-api/config";
/// Its folders that are used.
const CAPI_CONFIG_PARTS: [&str; 2] = ["crd/bases", "webhook"];
/// Names a folder that `setup-envtest` created, with etcd, kube-apiserver and kubectl.
pub const KUBEBUILDER_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// An error while finding or building a program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no cache directory for built programs: set HOME or XDG_CACHE_HOME")]
    NoCacheDirectory,
    #[error(
        "`go` was not found: install Go from https://go.dev/dl and put it on PATH, or point {ASSETS_VARIABLE} at a folder \
         with the programs"
    )]
    GoMissing,
    #[error(
        "Go {needed} is needed, {found} is too old: install a newer version from https://go.dev/dl, or unset GOTOOLCHAIN so \
         that Go downloads it"
    )]
    GoTooOld { found: String, needed: String },
    #[error("cannot run `go`: {source}")]
    RunGo { source: std::io::Error },
    #[error(
        "the disk is full: free 4 GiB on the disk with Go's caches (`go env GOCACHE GOMODCACHE`) and try again"
    )]
    DiskFull,
    #[error("the disk of {} has {free_mib} MiB free, but the build needs {needed_mib} MiB: free disk space and try again", path.display())]
    NotEnoughSpace { path: PathBuf, free_mib: u64, needed_mib: u64 },
    #[error(
        "Go modules could not be downloaded: check the network, or set GOPROXY to a module proxy that is reachable, and try \
         again; finished programs are kept\n{output}"
    )]
    Network { output: String },
    #[error("`go {command}` failed:\n{output}")]
    GoFailed { command: String, output: String },
    #[error("cannot parse the output of `go mod download -json`: {source}")]
    ParseModuleDownload { source: serde_json::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot lock {}: {source}", path.display())]
    Lock { path: PathBuf, source: std::io::Error },
}

/// The paths of programs that were found or built.
#[derive(Debug, Clone)]
pub struct Assets {
    paths: BTreeMap<Binary, PathBuf>,
    capi_config: PathBuf,
    kwok_stages: PathBuf,
    kubernetes: KubernetesVersion,
}

impl Assets {
    /// Finds the programs and builds missing ones.
    pub async fn ensure(binaries: &[Binary], progress: &dyn ProgressReporter) -> Result<Self, Error> {
        Self::ensure_version(KubernetesVersion::default(), binaries, progress).await
    }

    /// Like [`Assets::ensure`], for control planes of the given Kubernetes version.
    pub async fn ensure_version(
        kubernetes: KubernetesVersion,
        binaries: &[Binary],
        progress: &dyn ProgressReporter,
    ) -> Result<Self, Error> {
        let Located { cache, assets, missing } = Located::find(kubernetes, binaries).await?;
        if missing.is_empty() {
            return Ok(assets);
        }
        cache.build(&missing, progress).await?;
        // A program that was downloaded is elsewhere than one that was built.
        Ok(Located::find(kubernetes, binaries).await?.assets)
    }

    /// Returns whether none of the programs would have to be built, for control planes of the given Kubernetes version.
    pub async fn are_built(kubernetes: KubernetesVersion, binaries: &[Binary]) -> Result<bool, Error> {
        Ok(Located::find(kubernetes, binaries).await?.missing.is_empty())
    }

    /// Returns the same programs with those of another version. Builds them if they are missing.
    pub async fn with_version(
        &self,
        kubernetes: KubernetesVersion,
        progress: &dyn ProgressReporter,
    ) -> Result<Self, Error> {
        let other = Self::ensure_version(kubernetes, kubernetes.programs(), progress).await?;
        Ok(self.with_programs(other))
    }

    /// Like [`Assets::with_version`], but returns `None` if they are not built yet.
    pub async fn find_version(&self, kubernetes: KubernetesVersion) -> Result<Option<Self>, Error> {
        if kubernetes == self.kubernetes {
            return Ok(Some(self.clone()));
        }
        let located = Located::find(kubernetes, kubernetes.programs()).await?;
        Ok(located.missing.is_empty().then(|| self.with_programs(located.assets)))
    }

    fn with_programs(&self, other: Self) -> Self {
        let mut paths = self.paths.clone();
        paths.extend(other.paths);
        Self { paths, kubernetes: other.kubernetes, ..self.clone() }
    }

    /// Finds or builds every program of [`KubernetesVersion::PREBUILT`], except those of [`Binary::ON_DEMAND`].
    pub async fn ensure_every_version(progress: &dyn ProgressReporter) -> Result<(), Error> {
        let default = KubernetesVersion::default();
        let is_needed = |binary: &Binary| !Binary::ON_DEMAND.contains(binary);
        let binaries: Vec<_> = Binary::ALL.into_iter().filter(is_needed).collect();
        Self::ensure_version(default, &binaries, progress).await?;
        for version in KubernetesVersion::PREBUILT.into_iter().filter(|version| *version != default) {
            Self::ensure_version(version, version.programs(), progress).await?;
        }
        Ok(())
    }

    /// Copies the programs and manifests without official builds into a directory, as [`ASSETS_VARIABLE`] may name one.
    pub fn copy_unpublished(&self, directory: &Path) -> std::io::Result<()> {
        for binary in [Binary::Kwok, Binary::CapiManager] {
            std::fs::copy(self.path(binary), directory.join(binary.file_name()))?;
        }
        std::fs::copy(&self.kwok_stages, directory.join(KWOK_STAGES_FILE))?;
        for part in CAPI_CONFIG_PARTS {
            let target = directory.join(CAPI_CONFIG).join(part);
            std::fs::create_dir_all(&target)?;
            for entry in std::fs::read_dir(self.capi_config.join(part))? {
                let entry = entry?;
                std::fs::copy(entry.path(), target.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Returns the program's path. For a program that was not requested, returns its file name, which is looked up on
    /// `PATH`.
    pub fn path(&self, binary: Binary) -> &Path {
        self.paths.get(&binary).map_or_else(|| Path::new(binary.file_name()), PathBuf::as_path)
    }

    /// Returns the `config` folder of the Cluster API module, with `crd/bases` and `webhook/manifests.yaml`.
    pub fn capi_config(&self) -> &Path {
        &self.capi_config
    }

    /// Returns the file with the stages that kwok runs.
    pub fn kwok_stages(&self) -> &Path {
        &self.kwok_stages
    }

    pub fn kubernetes(&self) -> KubernetesVersion {
        self.kubernetes
    }
}

/// The result of a search for programs, before missing ones are built.
struct Located {
    cache: Cache,
    assets: Assets,
    missing: Vec<Binary>,
}

impl Located {
    async fn find(kubernetes: KubernetesVersion, binaries: &[Binary]) -> Result<Self, Error> {
        let cache = Cache::open(kubernetes)?;
        let prebuilt = PrebuiltFolders::from_environment();
        let required = required_version(kubernetes, binaries);
        let mut paths = BTreeMap::new();
        let mut missing = Vec::new();
        for binary in binaries {
            if let Some(path) = prebuilt.find(*binary, kubernetes, &required).await {
                paths.insert(*binary, path);
            } else {
                if !cache.is_complete(*binary) {
                    missing.push(*binary);
                }
                paths.insert(*binary, cache.path(*binary));
            }
        }
        let capi_config = prebuilt.capi_config().unwrap_or_else(|| cache.capi_config());
        let kwok_stages = prebuilt.kwok_stages().unwrap_or_else(|| cache.kwok_stages());
        Ok(Self { cache, assets: Assets { paths, capi_config, kwok_stages, kubernetes }, missing })
    }
}

/// Returns the output of `--version` that a prebuilt program must have. Clusters of Cluster API need the exact patch,
/// because Cluster API compares it with the requested version. For an API server alone, the minor is enough.
fn required_version(kubernetes: KubernetesVersion, binaries: &[Binary]) -> String {
    let for_cluster = binaries.contains(&Binary::KubeControllerManager);
    if for_cluster || kubernetes != KubernetesVersion::default() {
        format!("Kubernetes {kubernetes}")
    } else {
        format!("Kubernetes v1.{}.", kubernetes.minor())
    }
}

/// The folders with prebuilt programs that environment variables name.
struct PrebuiltFolders {
    chandler: Option<PathBuf>,
    kubebuilder: Option<PathBuf>,
}

impl PrebuiltFolders {
    fn from_environment() -> Self {
        let folder = |variable| env::var_os(variable).map(PathBuf::from);
        Self { chandler: folder(ASSETS_VARIABLE), kubebuilder: folder(KUBEBUILDER_VARIABLE) }
    }

    async fn find(&self, binary: Binary, kubernetes: KubernetesVersion, required: &str) -> Option<PathBuf> {
        let of_version = self.chandler.as_ref().map(|folder| folder.join(kubernetes.folder()));
        for folder in [&of_version, &self.chandler, &self.kubebuilder].into_iter().flatten() {
            let path = folder.join(binary.file_name());
            let matches = !Binary::CONTROL_PLANE.contains(&binary) || is_version(&path, required).await;
            if path.is_file() && matches {
                return Some(path);
            }
        }
        None
    }

    fn kwok_stages(&self) -> Option<PathBuf> {
        let stages = self.chandler.as_ref()?.join(KWOK_STAGES_FILE);
        stages.is_file().then_some(stages)
    }

    fn capi_config(&self) -> Option<PathBuf> {
        let config = self.chandler.as_ref()?.join(CAPI_CONFIG);
        config.is_dir().then_some(config)
    }
}

/// Returns whether a prebuilt program reports the required version. A required version that ends with `.` matches any
/// patch.
async fn is_version(program: &Path, required: &str) -> bool {
    let output = tokio::process::Command::new(program).arg("--version").output().await;
    output.is_ok_and(|output| {
        let reported = String::from_utf8_lossy(&output.stdout);
        let reported = reported.trim();
        reported == required || (required.ends_with('.') && reported.starts_with(required))
    })
}
