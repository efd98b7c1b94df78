//! Downloads files with `curl`: a library for https would take longer to compile than what it saves.

use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::Failure;

/// A host must accept a connection within this time, and then never be silent for longer.
const PATIENCE: &str = "3";
/// No program takes longer.
const LIMIT: &str = "900";
/// No program is larger.
const MAX_BYTES: &str = "500000000";
/// How often the size of an unfinished file is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// The exit codes of curl for a host that cannot be reached or does not answer.
const UNREACHABLE: [i32; 5] = [5, 6, 7, 28, 35];

/// Downloads a file. `show` gets the number of bytes so far.
pub(super) async fn download(url: &str, file: &Path, show: impl Fn(u64)) -> Result<(), Failure> {
    let mut command = Command::new("curl");
    command
        // First: otherwise a user's ~/.curlrc would count.
        .arg("--disable")
        .args(["--fail", "--silent", "--show-error", "--location", "--max-redirs", "5"])
        // Without a user's settings. An environment variable for a proxy counts.
        .args(["--connect-timeout", PATIENCE, "--speed-time", PATIENCE, "--speed-limit", "1"])
        .args(["--max-time", LIMIT, "--max-filesize", MAX_BYTES, "--output"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if url.starts_with("https://") {
        command.args(["--proto", "=https", "--proto-redir", "=https"]);
    }
    command.arg("--").arg(url);
    let output = tokio::select! {
        output = command.output() => output.map_err(|source| Failure::NoCurl { source })?,
        never = show_size(file, show) => match never {},
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let unreachable = output.status.code().is_some_and(|code| UNREACHABLE.contains(&code));
    Err(if unreachable { Failure::Unreachable { said } } else { Failure::Download { said } })
}

/// Shows the size of a file again and again.
async fn show_size(file: &Path, show: impl Fn(u64)) -> Infallible {
    loop {
        tokio::time::sleep(SHOW_EVERY).await;
        if let Ok(metadata) = tokio::fs::metadata(file).await {
            show(metadata.len());
        }
    }
}
