//! Checks licenses, sources and known vulnerabilities of the dependencies.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{
    command::{command, run, status},
    licenses, tools,
};

/// The exit code of govulncheck if it has found vulnerabilities. Other codes are failures of govulncheck itself.
const FOUND: i32 = 3;

/// Checks licenses, bans and sources of crates, and licenses of Go modules, against `deny.toml`.
pub fn deny(root: &Path) -> Result<()> {
    let deny = tools::cargo_deny(root)?;
    run(command(
        root,
        &deny.to_string_lossy(),
        &["--log-level", "error", "check", "licenses", "bans", "sources"],
    ))?;
    licenses::check(root)
}

/// Returns an error if a dependency has a known vulnerability. If a database is unreachable, prints a warning and
/// continues.
pub fn advisories(root: &Path) -> Result<()> {
    crates(root)?;
    modules(root)
}

fn crates(root: &Path) -> Result<()> {
    let deny = tools::cargo_deny(root)?;
    let deny = deny.to_string_lossy();
    if status(command(root, &deny, &["fetch", "db"]))? != 0 {
        warn_not_checked("crates", "the RustSec database cannot be fetched");
        return Ok(());
    }
    run(command(root, &deny, &["check", "--disable-fetch", "advisories"]))
}

fn modules(root: &Path) -> Result<()> {
    let Ok(govulncheck) = tools::govulncheck(root) else {
        warn_not_checked("Go modules", "govulncheck cannot be built");
        return Ok(());
    };
    match status(command(&root.join("tools/helm"), &govulncheck.to_string_lossy(), &["./..."]))? {
        0 => {}
        FOUND => bail!("govulncheck found vulnerabilities in code that is called"),
        _ => warn_not_checked("Go modules", "the Go vulnerability database cannot be read"),
    }
    Ok(())
}

fn warn_not_checked(what: &str, reason: &str) {
    eprintln!("xtask: advisories of {what} were NOT CHECKED: {reason}");
}
