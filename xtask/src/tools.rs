//! Tools that check the project, built once into the user's cache directory, at the versions pinned here.

use std::path::{Path, PathBuf};

use anyhow::Result;
use chandler_assets::cache_folder;

use crate::command::{command, run};

const ACTIONLINT: &str = "v1.7.12";
const CARGO_DENY: &str = "0.20.2";
const GOVULNCHECK: &str = "v1.8.0";

/// Returns the path of the tool that checks licenses, bans, sources and advisories of crates.
pub fn cargo_deny(root: &Path) -> Result<PathBuf> {
    cargo_install(root, "cargo-deny", CARGO_DENY)
}

/// Returns the path of the tool that finds vulnerabilities in Go code that is called.
pub fn govulncheck(root: &Path) -> Result<PathBuf> {
    go_install(root, "golang.org/x/vuln/cmd/govulncheck", GOVULNCHECK)
}

/// Returns the path of the linter for GitHub Actions workflows.
pub fn actionlint(root: &Path) -> Result<PathBuf> {
    go_install(root, "github.com/rhysd/actionlint/cmd/actionlint", ACTIONLINT)
}

/// Installs a crate if its program is missing, and returns the program. Builds without optimization, because the
/// program runs only for seconds.
fn cargo_install(root: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let folder = cache_folder("tools")?.join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        let package = format!("{name}@{version}");
        let folder = folder.to_string_lossy();
        run(command(root, "cargo", &["install", "--locked", "--debug", "--root", &folder, &package]))?;
    }
    Ok(program)
}

/// Installs a Go package if its program is missing, and returns the program.
fn go_install(root: &Path, package: &str, version: &str) -> Result<PathBuf> {
    let name = package.rsplit_once('/').map_or(package, |(_, name)| name);
    let folder = cache_folder("tools")?.join(format!("{name}-{version}"));
    let program = folder.join(name);
    if !program.is_file() {
        let package = format!("{package}@{version}");
        let mut install = command(root, "go", &["install", &package]);
        install.env("GOBIN", &folder);
        run(install)?;
    }
    Ok(program)
}
