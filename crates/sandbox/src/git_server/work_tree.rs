//! A work tree whose commits are pushed to a repository of the server.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, program};

/// A work tree of a served repository.
pub struct WorkTree {
    path: PathBuf,
}

impl WorkTree {
    pub(super) async fn create(served: &Path, name: &str) -> Result<Self, Error> {
        let bare = program::create_bare(served, name).await?;
        let path = served.with_file_name(format!("{name}-work-tree"));
        fs::create_dir_all(&path).map_err(|source| Error::Folder { path: path.clone(), source })?;
        let tree = Self { path };
        tree.git(&["init", "--quiet", "--initial-branch", "main"]).await?;
        let origin = bare.to_string_lossy().into_owned();
        tree.git(&["remote", "add", "origin", origin.as_str()]).await?;
        Ok(tree)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes files, commits everything, and pushes the branch. Returns the id of the commit.
    pub async fn commit(&self, message: &str, files: &[(&str, &str)]) -> Result<String, Error> {
        self.write(files)?;
        self.git(&["add", "--all"]).await?;
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]).await?;
        self.push().await
    }

    /// Writes files without committing them.
    pub fn write(&self, files: &[(&str, &str)]) -> Result<(), Error> {
        for (name, text) in files {
            let path = self.path.join(name);
            let failed = |source| Error::Folder { path: path.clone(), source };
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            fs::write(&path, text).map_err(failed)?;
        }
        Ok(())
    }

    /// Pushes the current branch and all tags. Returns the id of the commit.
    pub async fn push(&self) -> Result<String, Error> {
        self.git(&["push", "--quiet", "--force", "--tags", "origin", "HEAD"]).await?;
        self.git(&["rev-parse", "HEAD"]).await
    }

    /// Runs git in the work tree. Returns its output.
    pub async fn git(&self, arguments: &[&str]) -> Result<String, Error> {
        program::git(&self.path, arguments).await
    }
}
