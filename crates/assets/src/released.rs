//! The programs of a release of Chandler, for a first run that compiles nothing.

use std::path::PathBuf;

use crate::cache::{cache_folder, lock};
use crate::download::{Downloads, Release};
use crate::progress::ProgressReporter;
use crate::{ASSETS_VARIABLE, Error};

/// A directory with the programs of a release: `chandler`, its driver, `chandler-sandbox`, and the programs without
/// official builds that it runs.
#[derive(Debug, Clone)]
pub struct Released {
    pub directory: PathBuf,
}

impl Released {
    /// Downloads the release with a tag, which is at `commit`, from a repository on GitHub. Returns `None` if that is not
    /// possible, or if the user wants to build all programs.
    pub async fn download(
        remote: &str,
        tag: &str,
        commit: &str,
        progress: &dyn ProgressReporter,
    ) -> Result<Option<Self>, Error> {
        let Some(release) = Release::of(remote, tag) else { return Ok(None) };
        let root = cache_folder("releases")?;
        let Some(mut downloads) = Downloads::new(root.join("unfinished"), progress) else { return Ok(None) };
        let _lock = lock(&root, progress).await?;
        // Another repository may have the same tag, and a tag may be moved.
        let directory = root.join(format!("{}-{tag}-{commit}", release.repository().replace('/', "-")));
        let is_there = directory.is_dir() || downloads.get_release(&release, &directory).await;
        Ok(is_there.then_some(Self { directory }))
    }

    /// Returns the environment in which `chandler-sandbox` uses the programs of the release.
    pub fn environment(&self) -> (&'static str, PathBuf) {
        (ASSETS_VARIABLE, self.directory.clone())
    }
}
