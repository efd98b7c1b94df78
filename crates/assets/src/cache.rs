//! Where built programs are kept: a folder per module, named by what went into it, in the user's cache directory.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::catalog::{CLUSTER_API_MODULE, Module};
use super::{Binary, Error, KubernetesVersion, go};
use crate::digest;
use crate::progress::Progress;

const LINKER_FLAGS: &str = "-s -w";
const SPACE_NEEDED: u64 = 4 << 30;

pub(super) struct Cache {
    root: PathBuf,
    kubernetes: KubernetesVersion,
}

impl Cache {
    pub(super) fn open(kubernetes: KubernetesVersion) -> Result<Self, Error> {
        let base = env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| env::home_dir().map(|home| home.join(".cache")))
            .ok_or(Error::NoCacheDirectory)?;
        Ok(Self { root: base.join("chandler/assets"), kubernetes })
    }

    pub(super) fn path(&self, binary: Binary) -> PathBuf {
        self.folder(binary).join("bin").join(binary.file_name())
    }

    /// The Cluster API `config` folder of the same version as the manager.
    pub(super) fn capi_config(&self) -> PathBuf {
        self.folder(Binary::CapiManager).join("config")
    }

    fn folder(&self, binary: Binary) -> PathBuf {
        let module = binary.module(self.kubernetes);
        self.root.join(format!("{}-{}", module.name, fingerprint(module)))
    }

    /// Builds what is missing. One builder at a time: whoever waits finds the work done.
    pub(super) async fn build(&self, missing: &[Binary], progress: &dyn Progress) -> Result<(), Error> {
        let _lock = self.lock(progress).await?;
        let missing: Vec<_> = missing.iter().copied().filter(|binary| !self.is_complete(*binary)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.check_space()?;
        for (index, binary) in missing.iter().enumerate() {
            let step = format!("building {}", binary.title(self.kubernetes));
            progress.begin(&step, Some((index + 1, missing.len())));
            self.build_one(*binary).await?;
            progress.finish(&step);
        }
        Ok(())
    }

    pub(super) fn is_complete(&self, binary: Binary) -> bool {
        self.path(binary).is_file() && (binary != Binary::CapiManager || self.capi_config().is_dir())
    }

    async fn build_one(&self, binary: Binary) -> Result<(), Error> {
        let module = binary.module(self.kubernetes);
        let source = self.write_module(binary)?;
        go::check_version(&source, module.go_mod).await?;
        let target = self.path(binary);
        create_dir(target.parent().unwrap_or(&self.root))?;
        let unfinished = target.with_extension("unfinished");
        let flags = format!("{LINKER_FLAGS} {}", module.ldflags);
        let unfinished_name = unfinished.to_string_lossy();
        go::run(
            &source,
            &[
                "build",
                "-mod=readonly",
                "-trimpath",
                "-ldflags",
                flags.trim(),
                "-o",
                &unfinished_name,
                binary.package(),
            ],
        )
        .await?;
        if binary == Binary::CapiManager {
            self.copy_capi_config(&source).await?;
        }
        rename(&unfinished, &target)
    }

    fn write_module(&self, binary: Binary) -> Result<PathBuf, Error> {
        let module = binary.module(self.kubernetes);
        let source = self.folder(binary).join("module");
        create_dir(&source)?;
        write(&source.join("go.mod"), module.go_mod)?;
        write(&source.join("go.sum"), module.go_sum)?;
        Ok(source)
    }

    async fn copy_capi_config(&self, source: &Path) -> Result<(), Error> {
        let module = go::dependency_folder(source, CLUSTER_API_MODULE).await?;
        let target = self.capi_config();
        let unfinished = target.with_extension("unfinished");
        for part in ["crd/bases", "webhook"] {
            let folder = unfinished.join(part);
            create_dir(&folder)?;
            copy_files(&module.join("config").join(part), &folder)?;
        }
        if target.is_dir() {
            return Ok(());
        }
        rename(&unfinished, &target)
    }

    async fn lock(&self, progress: &dyn Progress) -> Result<File, Error> {
        create_dir(&self.root)?;
        let path = self.root.join("lock");
        let file = File::create(&path).map_err(|source| Error::Write { path: path.clone(), source })?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(Error::Lock { path, source }),
            }
            if !told {
                progress.begin("waiting for another process that builds the same programs", None);
                told = true;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if told {
            progress.finish("waiting for another process that builds the same programs");
        }
        Ok(file)
    }

    fn check_space(&self) -> Result<(), Error> {
        let Ok(status) = rustix::fs::statvfs(&self.root) else {
            return Ok(());
        };
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        if free < SPACE_NEEDED {
            return Err(Error::LittleSpace {
                path: self.root.clone(),
                free_mib: free >> 20,
                needed_mib: SPACE_NEEDED >> 20,
            });
        }
        Ok(())
    }
}

fn fingerprint(module: &Module) -> String {
    let mut digest = digest::of_parts(&[module.go_mod, module.go_sum, LINKER_FLAGS, module.ldflags]);
    digest.truncate(12);
    digest
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
        // The Go module cache is read-only; a copy through bytes is not.
        let bytes = fs::read(entry.path()).map_err(failed)?;
        fs::write(to.join(entry.file_name()), bytes).map_err(failed)?;
    }
    Ok(())
}
