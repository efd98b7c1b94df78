//! Built programs in the user's cache directory: one folder per Go module, named after a digest of its files.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::catalog::{CLUSTER_API_MODULE, KWOK_MODULE, KWOK_STAGES, Module};
use super::{Binary, CAPI_CONFIG_PARTS, Error, KubernetesVersion, go};
use crate::build::{Build, Builder};
use crate::digest::hex;
use crate::download::{self, Downloads};
use crate::progress::ProgressReporter;

const LINKER_FLAGS: &str = "-s -w";
const REQUIRED_FREE_BYTES: u64 = 4 << 30;
/// The directory of a module's programs that were built.
const BUILT: &str = "bin";
/// The directory of a module's programs that were downloaded.
const OFFICIAL: &str = "official";
const WAITING: &str = "waiting for another process that builds the same programs";

/// Returns the folder `name` of Chandler's cache in the user's cache directory.
pub fn cache_folder(name: &str) -> Result<PathBuf, Error> {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::home_dir().map(|home| home.join(".cache")))
        .ok_or(Error::NoCacheDirectory)?;
    Ok(base.join("chandler").join(name))
}

pub(super) struct Cache {
    root: PathBuf,
    kubernetes: KubernetesVersion,
}

/// The missing programs of one Go module. A single `go build` builds all of them and keeps every core busy: it compiles
/// packages of the next program while it links the previous one.
struct BuildGroup {
    module: &'static Module,
    binaries: Vec<Binary>,
}

impl BuildGroup {
    fn by_module(binaries: &[Binary], kubernetes: KubernetesVersion) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for binary in binaries {
            let module = binary.module(kubernetes);
            match groups.iter_mut().find(|group| group.module.name == module.name) {
                Some(group) => group.binaries.push(*binary),
                None => groups.push(Self { module, binaries: vec![*binary] }),
            }
        }
        groups
    }

    fn title(&self, kubernetes: KubernetesVersion) -> String {
        let names: Vec<_> = self.binaries.iter().map(|binary| binary.title(kubernetes)).collect();
        names.join(", ")
    }

    fn usual_build_time(&self) -> Duration {
        self.binaries.iter().map(|binary| binary.usual_build_time()).sum()
    }
}

impl Cache {
    pub(super) fn open(kubernetes: KubernetesVersion) -> Result<Self, Error> {
        Ok(Self { root: cache_folder("assets")?, kubernetes })
    }

    /// Returns the path of a program: of the official build if there is one and the user wants it.
    pub(super) fn path(&self, binary: Binary) -> PathBuf {
        let official = self.in_folder(binary, OFFICIAL);
        if download::is_allowed() && official.is_file() { official } else { self.in_folder(binary, BUILT) }
    }

    fn in_folder(&self, binary: Binary, folder: &str) -> PathBuf {
        self.folder(binary.module(self.kubernetes)).join(folder).join(binary.file_name())
    }

    /// Returns the `config` folder of the Cluster API version that the manager is built from.
    pub(super) fn capi_config(&self) -> PathBuf {
        self.folder(Binary::CapiManager.module(self.kubernetes)).join("config")
    }

    /// Returns the file with the stages of the kwok version that is built.
    pub(super) fn kwok_stages(&self) -> PathBuf {
        self.folder(Binary::Kwok.module(self.kubernetes)).join(super::KWOK_STAGES_FILE)
    }

    fn folder(&self, module: &Module) -> PathBuf {
        self.root.join(format!("{}-{}", module.name, fingerprint(module)))
    }

    /// Builds missing programs. A file lock allows one process to build at a time; a process that waited for the lock
    /// checks again which programs are missing.
    pub(super) async fn build(
        &self,
        missing: &[Binary],
        progress: &dyn ProgressReporter,
    ) -> Result<(), Error> {
        let _lock = lock(&self.root, progress).await?;
        let missing: Vec<_> = missing.iter().copied().filter(|binary| !self.is_complete(*binary)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = self.download(missing, progress).await?;
        if missing.is_empty() {
            return Ok(());
        }
        self.check_free_space()?;
        let groups = BuildGroup::by_module(&missing, self.kubernetes);
        let mut builder = Builder::new(progress);
        for (index, group) in groups.iter().enumerate() {
            self.build_group(group, &mut builder, Some((index + 1, groups.len()))).await?;
        }
        Ok(())
    }

    /// Downloads what is published, and returns the programs that have to be built.
    async fn download(
        &self,
        missing: Vec<Binary>,
        progress: &dyn ProgressReporter,
    ) -> Result<Vec<Binary>, Error> {
        let unfinished = self.root.join("unfinished-downloads");
        let Some(mut downloads) = Downloads::new(unfinished, progress) else { return Ok(missing) };
        let mut left = Vec::new();
        for binary in missing {
            let target = self.in_folder(binary, OFFICIAL);
            if let Some(directory) = target.parent() {
                create_dir(directory)?;
            }
            if !downloads.get(binary, self.kubernetes, &target).await {
                left.push(binary);
            }
        }
        Ok(left)
    }

    pub(super) fn is_complete(&self, binary: Binary) -> bool {
        let manifests = match binary {
            Binary::CapiManager => self.capi_config().is_dir(),
            Binary::Kwok => self.kwok_stages().is_file(),
            _ => true,
        };
        manifests && self.path(binary).is_file()
    }

    async fn build_group(
        &self,
        group: &BuildGroup,
        builder: &mut Builder<'_>,
        position: Option<(usize, usize)>,
    ) -> Result<(), Error> {
        let source = self.write_module(group.module)?;
        go::check_version(&source, group.module.go_mod).await?;
        let folder = self.folder(group.module);
        let (finished, unfinished) = (folder.join(BUILT), folder.join("unfinished"));
        create_dir(&finished)?;
        create_dir(&unfinished)?;
        let flags = format!("{LINKER_FLAGS} {}", group.module.ldflags);
        let output = format!("{}/", unfinished.display());
        let packages: Vec<_> = group.binaries.iter().map(|binary| binary.package()).collect();
        let build = Build {
            module: &source,
            flags: &["-mod=readonly", "-trimpath"],
            output: &["-ldflags", flags.trim(), "-o", &output],
            packages: &packages,
            usual: group.usual_build_time(),
        };
        builder.run(&group.title(self.kubernetes), position, build).await?;
        for binary in &group.binaries {
            match binary {
                Binary::CapiManager => self.copy_capi_config(&source).await?,
                Binary::Kwok => self.copy_kwok_stages(&source).await?,
                _ => {}
            }
            let program = unfinished.join(go::executable_name(binary.package()));
            rename(&program, &self.in_folder(*binary, BUILT))?;
        }
        Ok(())
    }

    fn write_module(&self, module: &Module) -> Result<PathBuf, Error> {
        let source = self.folder(module).join("module");
        create_dir(&source)?;
        write(&source.join("go.mod"), module.go_mod)?;
        write(&source.join("go.sum"), module.go_sum)?;
        for (path, program) in module.sources {
            let path = source.join(path);
            if let Some(directory) = path.parent() {
                create_dir(directory)?;
            }
            write(&path, program)?;
        }
        Ok(source)
    }

    async fn copy_capi_config(&self, source: &Path) -> Result<(), Error> {
        let target = self.capi_config();
        if target.is_dir() {
            return Ok(());
        }
        let module = go::dependency_folder(source, CLUSTER_API_MODULE).await?;
        let unfinished = target.with_extension("unfinished");
        for part in CAPI_CONFIG_PARTS {
            let folder = unfinished.join(part);
            create_dir(&folder)?;
            copy_files(&module.join("config").join(part), &folder)?;
        }
        rename(&unfinished, &target)
    }

    async fn copy_kwok_stages(&self, source: &Path) -> Result<(), Error> {
        let folder = go::dependency_folder(source, KWOK_MODULE).await?.join("kustomize/stage");
        let mut stages = String::new();
        for stage in KWOK_STAGES {
            let path = folder.join(stage);
            let text = fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
            stages.push_str("---\n");
            stages.push_str(&text);
        }
        let target = self.kwok_stages();
        let unfinished = target.with_extension("unfinished");
        write(&unfinished, &stages)?;
        rename(&unfinished, &target)
    }

    fn check_free_space(&self) -> Result<(), Error> {
        let Ok(status) = rustix::fs::statvfs(&self.root) else {
            return Ok(());
        };
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        if free < REQUIRED_FREE_BYTES {
            return Err(Error::NotEnoughSpace {
                path: self.root.clone(),
                free_mib: free >> 20,
                needed_mib: REQUIRED_FREE_BYTES >> 20,
            });
        }
        Ok(())
    }
}

/// Waits until no other process changes a directory of the cache.
pub(super) async fn lock(root: &Path, progress: &dyn ProgressReporter) -> Result<File, Error> {
    create_dir(root)?;
    let path = root.join("lock");
    let file = File::create(&path).map_err(|source| Error::Write { path: path.clone(), source })?;
    let mut waiting = false;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(Error::Lock { path, source }),
        }
        if !waiting {
            progress.begin(WAITING, None);
            waiting = true;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    if waiting {
        progress.finish(WAITING);
    }
    Ok(file)
}

fn fingerprint(module: &Module) -> String {
    let mut hash = Sha256::new();
    let parts = [module.go_mod, module.go_sum, LINKER_FLAGS, module.ldflags];
    for part in parts.into_iter().chain(module.sources.iter().map(|(_, program)| *program)) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hex(&hash.finalize()[..6])
}

fn create_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(|source| Error::Write { path: to.to_owned(), source })
}

fn copy_files(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |source| Error::Write { path: to.to_owned(), source };
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // `fs::copy` would also copy the read-only mode of the Go module cache.
        let bytes = fs::read(entry.path()).map_err(failed)?;
        fs::write(to.join(entry.file_name()), bytes).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_one_module_are_built_together() {
        let all = BuildGroup::by_module(&Binary::ALL, KubernetesVersion::V1_34);
        let names: Vec<_> = all.iter().map(|group| group.module.name).collect();
        assert_eq!(names, ["kubernetes-1.34", "helm", "fleet", "versitygw", "cluster-api"]);
        let mut built: Vec<_> = all.iter().flat_map(|group| group.binaries.clone()).collect();
        built.sort_unstable();
        assert_eq!(built, Binary::ALL);
        for (version, expected) in [
            (KubernetesVersion::V1_35, "kube-apiserver v1.35.4"),
            (
                KubernetesVersion::V1_36,
                "kube-apiserver v1.36.3, kube-controller-manager v1.36.3, kube-scheduler v1.36.3",
            ),
        ] {
            let other = BuildGroup::by_module(version.programs(), version);
            assert_eq!(other.len(), 1);
            assert_eq!(other[0].title(version), expected);
        }
    }
}
