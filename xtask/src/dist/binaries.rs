//! Builds the static binaries of the images, which are based on `scratch`: two of Chandler, and the agent of the tunnel.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::elf;
use crate::{
    build,
    command::{command, run as run_command},
    go,
};

/// The size of the agent that a release may have: every control plane node of a cluster behind NAT pulls it.
const MAX_AGENT_BYTES: usize = 6_000_000;

/// Returns the target triple that the binaries are built for: musl, on the architecture of this machine.
pub fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Returns whether this machine can build static binaries.
pub fn is_available() -> bool {
    Command::new("musl-gcc").arg("--version").output().is_ok()
}

/// Builds both binaries, optimized and static, into `out` and checks that they are static.
pub fn build(root: &Path, out: &Path) -> Result<()> {
    let target = prepare(root)?;
    let arguments = ["build", "--locked", "--package", "chandler-cli", "--release", "--target", &target];
    run_command(command(root, "cargo", &arguments))?;
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let chandler = out.join("chandler");
    let built = build::target(root).join(&target).join("release/chandler");
    fs::copy(&built, &chandler).with_context(|| format!("copying {}", built.display()))?;
    let driver = out.join("chandler-helm");
    go::driver(root, &driver)?;
    check_static(&chandler)?;
    check_static(&driver)
}

/// Builds the agent, static and small, into `out` and checks that it is both.
pub fn build_agent(root: &Path, out: &Path) -> Result<()> {
    let target = prepare(root)?;
    let built = build::agent(root, Some(&target))?;
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let agent = out.join("chandler-agent");
    fs::copy(&built, &agent).with_context(|| format!("copying {}", built.display()))?;
    check_static(&agent)?;
    let bytes = fs::read(&agent)?.len();
    ensure!(
        bytes <= MAX_AGENT_BYTES,
        "{} has {bytes} bytes, more than {MAX_AGENT_BYTES}: find the dependency with `cargo bloat`",
        agent.display()
    );
    Ok(())
}

/// Installs what a static binary needs, and returns its target triple.
fn prepare(root: &Path) -> Result<String> {
    ensure!(
        is_available(),
        "`musl-gcc` was not found: install it (Debian and Ubuntu: musl-tools); the crypto library contains C code"
    );
    let target = target();
    run_command(command(root, "rustup", &["target", "add", &target]))?;
    Ok(target)
}

fn check_static(program: &Path) -> Result<()> {
    let file = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    elf::require_static(&file).with_context(|| format!("{} is not static", program.display()))?;
    println!("{}: static, {} MiB", program.display(), file.len() >> 20);
    Ok(())
}
