//! An etcd that several control planes share. Each has its own prefix in it.

use std::fs;
use std::path::{Path, PathBuf};

use super::layout::restrict_permissions;
use super::{Error, components};
use crate::assets::Assets;
use crate::process::{self, Child};

/// An etcd for control planes with [`PlaneOptions::sharing`](super::PlaneOptions::sharing). It ends when it is dropped or
/// when this process ends.
#[derive(Debug)]
pub struct SharedEtcd {
    dir: PathBuf,
    child: Child,
}

impl SharedEtcd {
    /// Starts etcd. If it is started in the same folder again, it has the same data.
    pub async fn start(assets: &Assets, dir: &Path) -> Result<Self, Error> {
        let unusable = |source| Error::Folder { path: dir.to_owned(), source };
        fs::create_dir_all(dir).map_err(unusable)?;
        restrict_permissions(dir)?;
        // Control planes refer to it from their own folders.
        let dir = dir.canonicalize().map_err(unusable)?;
        let home = dir.clone();
        // The function blocks while it waits for orphans to end.
        let _ = tokio::task::spawn_blocking(move || process::terminate_orphans(&home)).await;
        let child = Child::spawn(&components::etcd(assets, &dir))?;
        Ok(Self { dir, child })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Kills etcd. The data may be incomplete afterwards.
    pub async fn kill(self) {
        self.child.kill().await;
    }
}
