//! Programs that check the project, built once into the user's cache directory, at a version that is pinned here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{command, run};

const CARGO_DENY: &str = "0.20.2";
const GOVULNCHECK: &str = "v1.8.0";

/// Licences, bans, sources and advisories of crates. Built without optimisation: it runs for seconds.
pub fn cargo_deny(root: &Path) -> Result<PathBuf> {
    let folder = cache()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let program = folder.join("bin/cargo-deny");
    if !program.is_file() {
        let package = format!("cargo-deny@{CARGO_DENY}");
        let folder = folder.to_string_lossy();
        run(command(root, "cargo", &["install", "--locked", "--debug", "--root", &folder, &package]))?;
    }
    Ok(program)
}

/// Vulnerabilities of Go modules that are called.
pub fn govulncheck(root: &Path) -> Result<PathBuf> {
    let folder = cache()?.join(format!("govulncheck-{GOVULNCHECK}"));
    let program = folder.join("govulncheck");
    if !program.is_file() {
        let package = format!("golang.org/x/vuln/cmd/govulncheck@{GOVULNCHECK}");
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
