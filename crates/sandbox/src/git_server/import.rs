//! Imports commits with `git fast-import`, which is much faster than a work tree.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};

use super::{Error, program};

/// Without differences between objects, whose search takes most of the time of an import.
const ARGUMENTS: [&str; 3] = ["fast-import", "--quiet", "--depth=0"];

/// A running import into a repository of the server.
pub struct Import {
    bare: PathBuf,
    child: Child,
    input: ChildStdin,
}

impl Import {
    pub(super) async fn start(served: &Path, name: &str) -> Result<Self, Error> {
        let bare = program::create_bare(served, name).await?;
        let mut child = program::command(&bare, &ARGUMENTS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Run { source })?;
        let input =
            child.stdin.take().ok_or_else(|| Error::Run { source: io::ErrorKind::BrokenPipe.into() })?;
        Ok(Self { bare, child, input })
    }

    /// Writes commands of `git fast-import`.
    pub async fn write(&mut self, commands: &[u8]) -> Result<(), Error> {
        self.input.write_all(commands).await.map_err(|source| Error::Run { source })
    }

    /// Waits until everything is imported. Returns the id of the last commit of `main`.
    pub async fn finish(self) -> Result<String, Error> {
        let Self { bare, child, input } = self;
        drop(input);
        let output = child.wait_with_output().await.map_err(|source| Error::Run { source })?;
        program::text(&ARGUMENTS, output)?;
        program::git(&bare, &["rev-parse", "refs/heads/main"]).await
    }
}
