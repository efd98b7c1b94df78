//! Generates a repository with many files and a long history.

use anyhow::Result;
use chandler_sandbox::git_server::GitServer;
use fastrand::Rng;

/// All files together stay below the limit of a Source, 64 MiB.
const FILE_BYTES: usize = 4096;
/// A commit replaces all files of one folder.
const FILES_PER_FOLDER: u32 = 100;
/// The content is random, so that it cannot be compressed, but always the same.
const SEED: u64 = 12;
const MEGABYTE: u64 = 1_000_000;

/// The content of the repository.
#[derive(Clone, Copy, Debug)]
pub struct LargeRepository {
    files: u32,
    /// The least size of all files of all commits together.
    history_bytes: u64,
}

impl LargeRepository {
    pub fn new(files: u32, history_mb: u32) -> Self {
        Self { files, history_bytes: u64::from(history_mb) * MEGABYTE }
    }

    /// Creates the repository. `on_progress` gets the megabytes that were written. Returns the id of the last commit.
    pub async fn create(self, server: &GitServer, name: &str, on_progress: impl Fn(u64)) -> Result<String> {
        let mut import = server.import(name).await?;
        let mut random = Rng::with_seed(SEED);
        let folders = self.files.div_ceil(FILES_PER_FOLDER);
        let (mut number, mut written) = (0, 0);
        while number < folders || written < self.history_bytes {
            let files = self.files_of(number % folders);
            import.write(&commit(number, &files, &mut random)).await?;
            written += u64::try_from(files.len() * FILE_BYTES)?;
            on_progress(written / MEGABYTE);
            number += 1;
        }
        Ok(import.finish().await?)
    }

    /// Returns the paths of the files of a folder.
    fn files_of(self, folder: u32) -> Vec<String> {
        let first = folder * FILES_PER_FOLDER;
        let end = (first + FILES_PER_FOLDER).min(self.files);
        (first..end).map(|file| format!("folder-{folder:03}/file-{file:05}")).collect()
    }
}

/// Returns the commands of `git fast-import` for a commit that writes files.
fn commit(number: u32, files: &[String], random: &mut Rng) -> Vec<u8> {
    let message = format!("commit {number}");
    let time = 1_700_000_000 + u64::from(number);
    let mut commands = format!(
        "commit refs/heads/main\ncommitter Anna <anna@example.com> {time} +0000\ndata {}\n{message}\n",
        message.len()
    )
    .into_bytes();
    let mut content = [0; FILE_BYTES];
    for file in files {
        random.fill(&mut content);
        commands.extend_from_slice(format!("M 100644 inline {file}\ndata {FILE_BYTES}\n").as_bytes());
        commands.extend_from_slice(&content);
        commands.push(b'\n');
    }
    commands
}

#[cfg(test)]
mod tests {
    use std::{process::Command, sync::Mutex};

    use chandler_sandbox::certificates::Authority;

    use super::*;

    #[test]
    fn every_file_is_in_one_folder() {
        let repository = LargeRepository::new(250, 1);
        let counts: Vec<_> = (0..3).map(|folder| repository.files_of(folder).len()).collect();
        assert_eq!(counts, [100, 100, 50]);
        assert_eq!(repository.files_of(2)[0], "folder-002/file-00200");
    }

    #[tokio::test]
    async fn the_repository_has_all_files_and_the_history() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(&folder.path().join("pki"), "bench").unwrap();
        let root = folder.path().join("served");
        let server = GitServer::start(&authority, &root).await.unwrap();
        let written = Mutex::new(0);
        let on_progress = |megabytes: u64| *written.lock().unwrap() = megabytes;
        let commit = LargeRepository::new(120, 2).create(&server, "large", on_progress).await.unwrap();
        let git = |arguments: &[&str]| {
            let output =
                Command::new("git").args(arguments).current_dir(root.join("large.git")).output().unwrap();
            String::from_utf8(output.stdout).unwrap().lines().count()
        };
        assert_eq!(git(&["ls-tree", "-r", "--name-only", &commit]), 120);
        // Every second commit replaces 100 files of 4 KiB, the others 20.
        assert_eq!((git(&["rev-list", &commit]), *written.lock().unwrap()), (9, 2));
    }
}
