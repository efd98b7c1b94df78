//! Runs all checks that must pass before a change is merged.

mod runner;
mod timing;

use std::path::Path;

use anyhow::{Result, ensure};

use self::runner::Step;
use crate::{
    command::{command, output, run as run_command},
    demo, generate, go, sandbox, supply_chain, test, workflows,
};

/// The steps in the order in which they run: quick checks that fail often come first.
const STEPS: &[Step] = &[
    Step { name: "formatting", run: formatting },
    Step { name: "clippy", run: clippy },
    Step { name: "each crate alone", run: each_crate_alone },
    Step { name: "go vet", run: go_vet },
    Step { name: "staticcheck", run: staticcheck },
    Step { name: "workflows", run: workflows::lint },
    Step { name: "build", run: |root| test::build(root).map(drop) },
    Step { name: "generated files", run: generated_files_are_committed },
    Step { name: "licenses", run: supply_chain::deny },
    Step { name: "advisories", run: supply_chain::advisories },
    Step { name: "tests", run: |root| test::run(root, false) },
    Step { name: "random faults", run: |root| sandbox::run_built(root, &test::build(root)?, "chaos", CHAOS) },
    Step { name: "demo", run: |root| demo::run_built(root, &test::build(root)?, true) },
];

/// The sequences of random faults, the same in every run. They take about four minutes.
const CHAOS: &[&str] = &["--seed", "1", "--sequences", "8"];

pub fn run(root: &Path) -> Result<()> {
    runner::run(root, STEPS)
}

fn clippy(root: &Path) -> Result<()> {
    run_command(command(
        root,
        "cargo",
        &["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"],
    ))
}

fn go_vet(root: &Path) -> Result<()> {
    go::in_each_module(root, &["vet", "./..."])
}

fn staticcheck(root: &Path) -> Result<()> {
    run_command(go::go(root, "tools/helm", &["tool", "staticcheck", "./..."]))
}

fn formatting(root: &Path) -> Result<()> {
    run_command(command(root, "cargo", &["fmt", "--all", "--check"]))?;
    for module in go::MODULES {
        let unformatted = output(command(&root.join(module), "gofmt", &["-l", "."]))?;
        ensure!(unformatted.is_empty(), "run gofmt in {module} on:\n{unformatted}");
    }
    Ok(())
}

/// Checks every crate separately. A crate that compiles only together with others lacks a feature or a dependency in its
/// Cargo.toml.
fn each_crate_alone(root: &Path) -> Result<()> {
    for folder in std::fs::read_dir(root.join("crates"))? {
        let package = format!("chandler-{}", folder?.file_name().to_string_lossy());
        run_command(command(root, "cargo", &["check", "--locked", "--package", &package]))?;
    }
    Ok(())
}

fn generated_files_are_committed(root: &Path) -> Result<()> {
    generate::run(root, &test::build(root)?)?;
    let arguments: Vec<&str> =
        ["status", "--porcelain", "--"].into_iter().chain(generate::GENERATED).collect();
    let changed = output(command(root, "git", &arguments))?;
    ensure!(
        changed.is_empty(),
        "generated files differ from the committed ones; run `cargo xtask generate` and commit the result:\n{changed}"
    );
    Ok(())
}
