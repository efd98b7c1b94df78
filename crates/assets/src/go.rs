//! Runs the Go toolchain and maps its failures to errors with a remedy.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::Error;
use crate::pace::Packages;

/// The first Go version that downloads a newer toolchain when a module requires one.
const FIRST_WITH_TOOLCHAIN_DOWNLOAD: (u32, u32) = (1, 21);

/// Runs a Go command in a module's folder.
async fn run(module: &Path, args: &[&str]) -> Result<Output, Error> {
    let output = command(module, args).output().await.map_err(not_started)?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(classify(&args.join(" "), &stderr))
}

/// Runs `go build -v`. Calls `on_package` with the number of packages compiled so far.
pub(super) async fn build(
    module: &Path,
    args: &[&str],
    mut on_package: impl FnMut(usize),
) -> Result<(), Error> {
    let mut child = command(module, args).stderr(Stdio::piped()).spawn().map_err(not_started)?;
    let mut lines = child.stderr.take().map(|stderr| BufReader::new(stderr).lines());
    let (mut packages, mut messages) = (0, String::new());
    while let Some(lines) = &mut lines {
        let line = lines.next_line().await.map_err(|source| Error::RunGo { source })?;
        let Some(line) = line else { break };
        if is_package(&line) {
            packages += 1;
            on_package(packages);
        } else {
            messages.push_str(&line);
            messages.push('\n');
        }
    }
    let status = child.wait().await.map_err(|source| Error::RunGo { source })?;
    if status.success() { Ok(()) } else { Err(classify(&args.join(" "), &messages)) }
}

/// Counts the packages that main packages consist of.
pub(super) async fn packages(module: &Path, flags: &[&str], main: &[&str]) -> Result<Packages, Error> {
    let arguments = [&["list", "-deps", "-f", "{{.Stale}}"], flags, main].concat();
    let output = run(module, &arguments).await?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let missing = lines.lines().filter(|stale| *stale == "true").count();
    Ok(Packages { all: lines.lines().count(), missing })
}

/// Returns whether a line is the import path of a package. `go build -v` prints one per compiled package.
fn is_package(line: &str) -> bool {
    !line.is_empty() && line.chars().all(|c| c.is_ascii_alphanumeric() || "/.-_~+".contains(c))
}

/// Returns the file name that `go build` gives the executable of a main package: the last element of its import path
/// that is not a major version.
pub(super) fn executable_name(package: &str) -> &str {
    let is_version =
        |element: &str| element.strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok());
    package.rsplit('/').find(|element| !is_version(element)).unwrap_or(package)
}

fn command(module: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("go");
    command
        .args(args)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some((name, value)) = less_garbage_collection() {
        command.env(name, value);
    }
    command
}

/// Returns the variable that lets the Go compiler collect garbage less often, which takes much of its CPU
/// time, unless the user has set it.
pub fn less_garbage_collection() -> Option<(&'static str, &'static str)> {
    const VARIABLE: &str = "GOGC";
    std::env::var_os(VARIABLE).is_none().then_some((VARIABLE, "400"))
}

fn not_started(source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::NotFound => Error::GoMissing,
        _ => Error::RunGo { source },
    }
}

/// Returns an error if the installed Go is too old for the module and cannot download a newer toolchain.
pub(super) async fn check_version(module: &Path, go_mod: &str) -> Result<(), Error> {
    let output = run(module, &["env", "GOVERSION"]).await?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let needed = required_version(go_mod).unwrap_or_default();
    match parse_version(&found) {
        Some(version) if version < FIRST_WITH_TOOLCHAIN_DOWNLOAD => Err(Error::GoTooOld { found, needed }),
        _ => Ok(()),
    }
}

/// Downloads a dependency of the module and returns its folder in the module cache.
pub async fn dependency_folder(module: &Path, dependency: &str) -> Result<PathBuf, Error> {
    #[derive(serde::Deserialize)]
    struct Download {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    let output = run(module, &["mod", "download", "-json", dependency]).await?;
    serde_json::from_slice::<Download>(&output.stdout)
        .map(|download| download.dir)
        .map_err(|source| Error::ParseModuleDownload { source })
}

fn required_version(go_mod: &str) -> Option<String> {
    go_mod.lines().find_map(|line| line.strip_prefix("go ")).map(|version| version.trim().to_owned())
}

/// Parses `go1.26.8` into `(1, 26)`. Returns `None` for development versions.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix("go")?.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

fn classify(command: &str, stderr: &str) -> Error {
    const NO_NETWORK: [&str; 7] = [
        "no such host",
        "dial tcp",
        "i/o timeout",
        "connection refused",
        "network is unreachable",
        "TLS handshake timeout",
        "module lookup disabled by GOPROXY=off",
    ];
    let has = |text: &str| stderr.contains(text);
    if has("no space left on device") {
        Error::DiskFull
    } else if let Some(needed) = required_by_module(stderr) {
        Error::GoTooOld { found: "the installed one".to_owned(), needed }
    } else if NO_NETWORK.into_iter().any(has) {
        Error::Network { output: last_lines(stderr) }
    } else {
        Error::GoFailed { command: command.to_owned(), output: last_lines(stderr) }
    }
}

fn required_by_module(stderr: &str) -> Option<String> {
    let (_, rest) = stderr.split_once("requires go >= ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed() {
        assert_eq!(parse_version("go1.26.8"), Some((1, 26)));
        assert_eq!(parse_version("go1.27rc1"), Some((1, 27)));
        assert_eq!(parse_version("devel +abc"), None);
        assert_eq!(required_version("module x\n\ngo 1.25.0\n").as_deref(), Some("1.25.0"));
    }

    #[test]
    fn package_lines_are_distinguished_from_messages() {
        assert!(is_package("k8s.io/api/core/v1"));
        assert!(is_package("gopkg.in/yaml.v3"));
        for message in ["", "go: downloading k8s.io/api v0.34.4", "# k8s.io/api", "main.go:1:2: syntax error"]
        {
            assert!(!is_package(message), "{message}");
        }
    }

    #[test]
    fn executables_are_named_as_go_names_them() {
        for (package, name) in [
            ("go.etcd.io/etcd/server/v3", "server"),
            ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
            ("sigs.k8s.io/cluster-api", "cluster-api"),
            ("sigs.k8s.io/cluster-api-operator/cmd", "cmd"),
        ] {
            assert_eq!(executable_name(package), name);
        }
    }

    #[test]
    fn errors_name_a_remedy() {
        for (stderr, advice) in [
            (
                "go: go.mod requires go >= 1.26.0 (running go 1.24.1; GOTOOLCHAIN=local)",
                "Go 1.26.0 is needed",
            ),
            ("write /x: no space left on device", "disk is full"),
            ("Get \"https://proxy\": dial tcp: lookup proxy: no such host", "check the network"),
            ("main.go:1: syntax error", "`go build` failed"),
        ] {
            let error = classify("build", stderr).to_string();
            assert!(error.contains(advice), "{error}");
        }
    }
}
