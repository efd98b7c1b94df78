//! Runs git, with a fixed user and without the configuration of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use tokio::process::Command;

use super::Error;

/// Creates an empty bare repository in the served folder. Returns its path.
pub(super) async fn create_bare(served: &Path, name: &str) -> Result<PathBuf, Error> {
    let bare = served.join(format!("{name}.git"));
    fs::create_dir_all(&bare).map_err(|source| Error::Folder { path: bare.clone(), source })?;
    git(&bare, &["init", "--quiet", "--bare", "--initial-branch", "main"]).await?;
    Ok(bare)
}

/// Runs git in a folder. Returns its output.
pub(super) async fn git(folder: &Path, arguments: &[&str]) -> Result<String, Error> {
    let output = command(folder, arguments).output().await.map_err(|source| Error::Run { source })?;
    text(arguments, output)
}

/// Returns the command that runs git in a folder. The process is killed when it is dropped.
pub(super) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Anna")
        .env("GIT_AUTHOR_EMAIL", "anna@example.com")
        .env("GIT_COMMITTER_NAME", "Anna")
        .env("GIT_COMMITTER_EMAIL", "anna@example.com")
        .kill_on_drop(true);
    command
}

/// Returns what git has printed, or an error with it if git has failed.
pub(super) fn text(arguments: &[&str], output: Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(Error::Git { arguments: arguments.join(" "), output: String::from_utf8_lossy(&text).into_owned() })
}
