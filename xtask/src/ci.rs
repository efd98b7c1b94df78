//! Everything that has to pass before a change lands.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::{
    command::{command, output, run as run_command},
    demo, generate, supply_chain,
    test::{self, GO_MODULES},
};

pub fn run(root: &Path) -> Result<()> {
    formatting(root)?;
    run_command(command(
        root,
        "cargo",
        &["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"],
    ))?;
    each_crate_alone(root)?;
    for module in GO_MODULES {
        run_command(command(&root.join(module), "go", &["vet", "./..."]))?;
    }
    run_command(command(&root.join("tools/helm"), "go", &["tool", "staticcheck", "./..."]))?;
    generated_is_committed(root)?;
    supply_chain::deny(root)?;
    supply_chain::advisories(root)?;
    test::run(root, false)?;
    demo::run(root, true)
}

fn formatting(root: &Path) -> Result<()> {
    run_command(command(root, "cargo", &["fmt", "--all", "--check"]))?;
    for module in GO_MODULES {
        let unformatted = output(command(&root.join(module), "gofmt", &["-l", "."]))?;
        ensure!(unformatted.is_empty(), "run gofmt in {module} on:\n{unformatted}");
    }
    Ok(())
}

/// A crate that compiles only in the company of others has a dependency it does not name.
fn each_crate_alone(root: &Path) -> Result<()> {
    for folder in std::fs::read_dir(root.join("crates"))? {
        let package = format!("chandler-{}", folder?.file_name().to_string_lossy());
        run_command(command(root, "cargo", &["check", "--locked", "--package", &package]))?;
    }
    Ok(())
}

fn generated_is_committed(root: &Path) -> Result<()> {
    generate::run(root)?;
    let arguments: Vec<&str> =
        ["status", "--porcelain", "--"].into_iter().chain(generate::GENERATED).collect();
    let changed = output(command(root, "git", &arguments))?;
    ensure!(
        changed.is_empty(),
        "generated files differ from what is committed; run `cargo xtask generate` and commit:\n{changed}"
    );
    Ok(())
}
