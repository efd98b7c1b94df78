//! Builds the two static binaries of the image, which is based on `scratch`.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::elf;
use crate::{
    build,
    command::{command, run as run_command},
    go,
};

/// Returns the target triple that the binaries are built for: musl, on the architecture of this machine.
pub fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds both binaries, optimized and static, into `out` and checks that they are static.
pub fn build(root: &Path, out: &Path) -> Result<()> {
    let target = target();
    ensure!(
        Command::new("musl-gcc").arg("--version").output().is_ok(),
        "`musl-gcc` was not found: install it (Debian and Ubuntu: musl-tools); the crypto library contains C code"
    );
    run_command(command(root, "rustup", &["target", "add", &target]))?;
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

fn check_static(program: &Path) -> Result<()> {
    let file = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    elf::require_static(&file).with_context(|| format!("{} is not static", program.display()))?;
    println!("{}: static, {} MiB", program.display(), file.len() >> 20);
    Ok(())
}
