//! Builds the static binaries of the images, which have no base image: two of Chandler, and the agent of the tunnel.
//!
//! They are reproducible: no path of the machine gets into them, and neither does the state of the Git work tree.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use chandler_assets::Binary;

use super::elf;
use crate::{
    build,
    command::{command, run as run_command},
    go,
};

/// The size of the agent that a release may have: every control plane node of a cluster behind NAT pulls it.
const MAX_AGENT_BYTES: usize = 6_000_000;
/// Separates the flags in `CARGO_ENCODED_RUSTFLAGS`, so that paths may contain spaces.
const FLAG_SEPARATOR: &str = "\x1f";

/// Returns the target triple that the binaries are built for: musl, on the architecture of this machine.
pub fn target() -> String {
    format!("{}-unknown-linux-musl", env::consts::ARCH)
}

/// Returns whether this machine can build static binaries.
pub fn is_available() -> bool {
    Command::new("musl-gcc").arg("--version").output().is_ok()
}

/// Builds both binaries, optimized and static, into `out` and checks that they are static.
pub fn build(root: &Path, out: &Path) -> Result<()> {
    Build::of_release(root).chandler(out)
}

/// Builds the agent, static and small, into `out` and checks that it is both.
pub fn build_agent(root: &Path, out: &Path) -> Result<()> {
    Build::of_release(root).agent(out)
}

/// Builds `chandler-sandbox`, and the programs without official builds that it runs, into `out`.
pub fn build_sandbox(root: &Path, out: &Path) -> Result<()> {
    Build::of_release(root).sandbox(out)
}

/// Where and for what the binaries are built.
pub struct Build<'a> {
    pub root: &'a Path,
    /// Cargo's target folder.
    pub target_folder: PathBuf,
    /// The target triple.
    pub target: String,
    /// Go's build cache. `None` means that of this user.
    pub go_cache: Option<PathBuf>,
}

impl<'a> Build<'a> {
    fn of_release(root: &'a Path) -> Self {
        Self { root, target_folder: build::target(root), target: target(), go_cache: None }
    }

    /// Builds `chandler` and its driver into `out`.
    pub fn chandler(&self, out: &Path) -> Result<()> {
        let chandler = self.cargo(&["chandler-cli"], "release", "chandler", out)?;
        let driver = out.join("chandler-helm");
        let mut go = go::build_driver(self.root, &driver);
        go.envs(self.go_cache.iter().map(|folder| ("GOCACHE", folder)));
        run_command(go)?;
        self.check_static(&chandler)?;
        self.check_static(&driver)
    }

    /// Builds the agent into `out`.
    pub fn agent(&self, out: &Path) -> Result<()> {
        let agent = self.cargo(&["chandler-agent"], build::AGENT_PROFILE, "chandler-agent", out)?;
        self.check_static(&agent)?;
        let bytes = fs::read(&agent)?.len();
        ensure!(
            bytes <= MAX_AGENT_BYTES,
            "{} has {bytes} bytes, more than {MAX_AGENT_BYTES}: find the dependency with `cargo bloat`",
            agent.display()
        );
        Ok(())
    }

    /// Builds `chandler-sandbox` without the commands for developers, and the programs of the sandbox.
    fn sandbox(&self, out: &Path) -> Result<()> {
        let sandbox = self.cargo(
            &["chandler-sandbox-cli", "--no-default-features"],
            "release",
            "chandler-sandbox",
            out,
        )?;
        self.check_static(&sandbox)?;
        go::programs(&[Binary::Kwok, Binary::CapiManager])?
            .copy_unpublished(out)
            .with_context(|| format!("copying programs to {}", out.display()))
    }

    /// Builds a package, copies its program into `out`, and returns the copy.
    fn cargo(&self, package: &[&str], profile: &str, program: &str, out: &Path) -> Result<PathBuf> {
        self.prepare()?;
        let arguments = ["build", "--locked", "--profile", profile, "--target", &self.target, "--package"];
        let mut cargo = command(self.root, "cargo", &[&arguments, package].concat());
        cargo.env("CARGO_TARGET_DIR", &self.target_folder).env("CARGO_ENCODED_RUSTFLAGS", self.flags()?);
        run_command(cargo)?;
        fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
        let built = self.target_folder.join(&self.target).join(profile).join(program);
        let copy = out.join(program);
        fs::copy(&built, &copy).with_context(|| format!("copying {}", built.display()))?;
        Ok(copy)
    }

    /// Returns flags that replace the folders of this machine in the names of source files, which panics print. Cargo leaves
    /// these flags out of the names of its own folders.
    fn flags(&self) -> Result<String> {
        let cargo_home = cargo_home()?;
        Ok(remap_flags(&[
            (self.root, "/chandler"),
            (&self.target_folder, "/chandler/target"),
            (&cargo_home, "/cargo"),
        ]))
    }

    /// Installs what the target needs.
    fn prepare(&self) -> Result<()> {
        if !self.is_static() {
            return Ok(());
        }
        ensure!(
            is_available(),
            "`musl-gcc` was not found: install it (Debian and Ubuntu: musl-tools); the crypto library contains C code"
        );
        run_command(command(self.root, "rustup", &["target", "add", &self.target]))
    }

    fn check_static(&self, program: &Path) -> Result<()> {
        if !self.is_static() {
            return Ok(());
        }
        let file = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
        elf::require_static(&file).with_context(|| format!("{} is not static", program.display()))?;
        println!("{}: static, {} MiB", program.display(), file.len() >> 20);
        Ok(())
    }

    fn is_static(&self) -> bool {
        self.target.ends_with("-musl")
    }
}

/// Returns the folder with the sources of crates.
pub fn cargo_home() -> Result<PathBuf> {
    match env::var_os("CARGO_HOME") {
        Some(folder) => Ok(folder.into()),
        None => Ok(env::home_dir().context("this user has no home folder")?.join(".cargo")),
    }
}

fn remap_flags(folders: &[(&Path, &str)]) -> String {
    let flag = |(from, to): &(&Path, &str)| format!("--remap-path-prefix={}={to}", from.display());
    folders.iter().map(flag).collect::<Vec<_>>().join(FLAG_SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_machine_are_replaced() {
        let flags = remap_flags(&[
            (Path::new("/home/a user/src"), "/chandler"),
            (Path::new("/cargo home"), "/cargo"),
        ]);
        assert_eq!(
            flags.split(FLAG_SEPARATOR).collect::<Vec<_>>(),
            ["--remap-path-prefix=/home/a user/src=/chandler", "--remap-path-prefix=/cargo home=/cargo"]
        );
    }
}
