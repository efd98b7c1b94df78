//! Builds and runs the demo. On a release tag without changes, it runs the programs of the release.

use std::{env, path::Path};

use anyhow::Result;
use chandler_assets::{ASSETS_VARIABLE, Released};

use crate::{
    build::{self, Binaries},
    command::{command, output, run as run_command},
    go, sandbox,
};

pub fn run(root: &Path, exit: bool) -> Result<()> {
    if let Some(released) = released(root)? {
        let binaries = Binaries::in_folder(&released.directory);
        let mut demo = sandbox::built(root, &binaries, "demo", arguments(exit));
        let (variable, directory) = released.environment();
        demo.env(variable, directory);
        return run_command(demo);
    }
    sandbox::run_built(root, &build::for_demo(root)?, "demo", arguments(exit))
}

fn arguments(exit: bool) -> &'static [&'static str] {
    if exit { &["--exit"] } else { &[] }
}

/// Downloads the release that this checkout is.
fn released(root: &Path) -> Result<Option<Released>> {
    // A source archive is no repository: then the programs are built.
    let git = |arguments: &[&str]| output(command(root, "git", arguments)).ok();
    let tag = concat!("v", env!("CARGO_PKG_VERSION"));
    let is_tagged =
        git(&["tag", "--points-at", "HEAD"]).is_some_and(|tags| tags.lines().any(|line| line == tag));
    let is_clean = git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
    // The user's own programs have precedence.
    let has_assets = env::var_os(ASSETS_VARIABLE).is_some();
    match (git(&["remote", "get-url", "origin"]), git(&["rev-parse", "HEAD"])) {
        (Some(remote), Some(commit)) if is_tagged && is_clean && !has_assets => {
            go::released(remote.trim(), tag, commit.trim())
        }
        _ => Ok(None),
    }
}
