//! What is linked into Chandler: under which licences, from where, and whether something is known against it.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{
    command::{command, run, status},
    tools,
};

/// What govulncheck says when it has found something; other failures are its own.
const FOUND: i32 = 3;

/// Licences, bans and sources, as `deny.toml` says.
pub fn deny(root: &Path) -> Result<()> {
    let deny = tools::cargo_deny(root)?;
    run(command(
        root,
        &deny.to_string_lossy(),
        &["--log-level", "error", "check", "licenses", "bans", "sources"],
    ))
}

/// Fails if something is known against what is linked. Where a database cannot be reached, says so and goes on.
pub fn advisories(root: &Path) -> Result<()> {
    crates(root)?;
    modules(root)
}

fn crates(root: &Path) -> Result<()> {
    let deny = tools::cargo_deny(root)?;
    let deny = deny.to_string_lossy();
    if status(command(root, &deny, &["fetch", "db"]))? != 0 {
        not_checked("crates", "the RustSec database cannot be fetched");
        return Ok(());
    }
    run(command(root, &deny, &["check", "--disable-fetch", "advisories"]))
}

fn modules(root: &Path) -> Result<()> {
    let Ok(govulncheck) = tools::govulncheck(root) else {
        not_checked("Go modules", "govulncheck cannot be built");
        return Ok(());
    };
    match status(command(&root.join("tools/helm"), &govulncheck.to_string_lossy(), &["./..."]))? {
        0 => {}
        FOUND => bail!("govulncheck has found vulnerabilities that are called"),
        _ => not_checked("Go modules", "the Go vulnerability database cannot be read"),
    }
    Ok(())
}

fn not_checked(what: &str, why: &str) {
    eprintln!("xtask: advisories of {what} were NOT CHECKED: {why}");
}
