//! Runs all checks that must pass before a change is merged.

mod runner;
mod timing;

use std::{
    path::Path,
    sync::mpsc::{self, Receiver},
};

use anyhow::{Context as _, Result, ensure};

use self::runner::Step;
use crate::{
    build::{self, Binaries},
    command::{all_output, command, output, run as run_command},
    generate, go, sandbox, supply_chain,
    test::{self, Ignored},
    workflows,
};

/// The steps of `cargo xtask ci`. Tests run the demo to its end.
const STEPS: &[Step] = &[
    Step { name: "formatting", run: formatting },
    Step { name: "build", run: |root| test::build(root).map(drop) },
    Step { name: "generated files", run: generated_files_are_committed },
    Step { name: "tests, random faults and checks", run: tests },
];

/// The steps of `cargo xtask check`: checks that often fail come first.
const CHECKS: &[Step] = &[
    Step { name: "formatting", run: formatting },
    Step { name: "clippy", run: clippy },
    Step { name: "crates alone", run: crates_alone },
    Step { name: "go vet", run: go_vet },
    Step { name: "staticcheck", run: staticcheck },
    Step { name: "workflows", run: workflows::lint },
    Step { name: "licenses", run: supply_chain::deny },
    Step { name: "advisories", run: supply_chain::advisories },
];

/// The sequences of random faults, the same in every run. They take about four minutes.
const CHAOS: &[&str] = &["--seed", "1", "--sequences", "8"];

pub fn run(root: &Path) -> Result<()> {
    runner::run(root, STEPS)
}

/// Runs the checks that need no test and no program of the sandbox.
pub fn check(root: &Path) -> Result<()> {
    runner::run(root, CHECKS)
}

/// Runs the tests, and what fits beside them: the random faults, which mostly wait, and the checks, which get
/// the CPU time that nothing else uses. What these print is printed at their end, not between the tests.
fn tests(root: &Path) -> Result<()> {
    let binaries = &test::build(root)?;
    let (started, start) = mpsc::channel();
    let run_tests = || {
        let started = move || _ = started.send(());
        test::run_built(root, binaries, Ignored::WhereBuilt, started)
    };
    let checks = move || checks_beside_tests(root, binaries, &start);
    build::in_parallel(run_tests, || build::in_parallel(|| random_faults(root, binaries), checks))
}

fn random_faults(root: &Path, binaries: &Binaries) -> Result<()> {
    print_at_end("random faults", sandbox::output_of_built(root, binaries, "chaos", CHAOS))
}

/// Begins when the first test runs: until then, cargo has locked the directory to which it compiles.
fn checks_beside_tests(root: &Path, binaries: &Binaries, tests_run: &Receiver<()>) -> Result<()> {
    // An error means that no test will run.
    _ = tests_run.recv();
    // The build has replaced the program of this process.
    let xtask = binaries.chandler.with_file_name("xtask");
    let arguments = ["-n", "19", &*xtask.to_string_lossy(), "check"];
    print_at_end("checks", all_output(command(root, "nice", &arguments)))
}

fn print_at_end(what: &'static str, printed: Result<String>) -> Result<()> {
    printed
        .inspect(|printed| eprint!("{printed}"))
        .inspect_err(|error| eprintln!("xtask: {what}: {error:#}"))
        .map(drop)
        .context(what)
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

/// Checks crates without the others, because one that compiles only together with the tests lacks a feature in its
/// Cargo.toml: those that other projects may use, the agent, and those that `cargo xtask demo` builds.
fn crates_alone(root: &Path) -> Result<()> {
    let builds: [&[&str]; 4] = [
        &["--package", "chandler-api"],
        &["--package", "chandler-core"],
        &["--package", "chandler-agent"],
        build::DEMO,
    ];
    builds.iter().try_for_each(|packages| {
        run_command(command(root, "cargo", &[&["check", "--locked"], *packages].concat()))
    })
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
