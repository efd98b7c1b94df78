//! Programs that check the project, built once into the user's cache directory, at a version that is pinned here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{command, run};

const ACTIONLINT: &str = "v1.7.12";
const CARGO_CYCLONEDX: &str = "0.5.9";
const CARGO_DENY: &str = "0.20.2";
const GOVULNCHECK: &str = "v1.8.0";

/// Bills of materials of programs made of crates.
pub fn cargo_cyclonedx(root: &Path) -> Result<PathBuf> {
    crate_program(root, "cargo-cyclonedx", CARGO_CYCLONEDX)
}

/// Licences, bans, sources and advisories of crates.
pub fn cargo_deny(root: &Path) -> Result<PathBuf> {
    crate_program(root, "cargo-deny", CARGO_DENY)
}

/// Vulnerabilities of Go modules that are called.
pub fn govulncheck(root: &Path) -> Result<PathBuf> {
    module_program(root, "golang.org/x/vuln/cmd/govulncheck", GOVULNCHECK)
}

/// Mistakes in workflows of GitHub Actions.
pub fn actionlint(root: &Path) -> Result<PathBuf> {
    module_program(root, "github.com/rhysd/actionlint/cmd/actionlint", ACTIONLINT)
}

/// Returns the program of a crate. Builds it without optimization, because it runs for seconds.
fn crate_program(root: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let folder = cache()?.join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        let package = format!("{name}@{version}");
        let folder = folder.to_string_lossy();
        run(command(root, "cargo", &["install", "--locked", "--debug", "--root", &folder, &package]))?;
    }
    Ok(program)
}

/// Returns the program of a Go package.
fn module_program(root: &Path, package: &str, version: &str) -> Result<PathBuf> {
    let name = package.rsplit_once('/').map_or(package, |(_, name)| name);
    let folder = cache()?.join(format!("{name}-{version}"));
    let program = folder.join(name);
    if !program.is_file() {
        let package = format!("{package}@{version}");
        let mut install = command(root, "go", &["install", &package]);
        install.env("GOBIN", &folder);
        run(install)?;
    }
    Ok(program)
}

/// Beside the parts of the sandbox.
fn cache() -> Result<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(base.context("no cache directory: set HOME or XDG_CACHE_HOME")?.join("chandler/tools"))
}
