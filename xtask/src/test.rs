//! Runs the Go and Rust tests.

mod ignored;
mod targets;
mod times;

use std::{
    env,
    io::{self, IsTerminal as _},
    path::Path,
    process::Command,
    thread,
};

use anyhow::{Result, ensure};

use crate::{
    build::{self, Binaries},
    command::{command, output, run as run_command, run_lines},
    go,
    test::{
        targets::{Selected, Target},
        times::TestTimes,
    },
};

/// Almost half of the CPU time of an API server is garbage collection, and API servers take most of the time of the tests.
const LESS_GARBAGE_COLLECTION: [(&str, &str); 2] = [("GOGC", "400"), ("GOMEMLIMIT", "1500MiB")];

/// How many tests of a binary run at the same time; also read by `cargo test`.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// When cargo prints colors. What it prints is read before it is printed, so it does not see the terminal.
const COLOR: &str = "CARGO_TERM_COLOR";

/// All tests but those in documentation, which has none: looking for them compiles the crates again.
const ALL: &[&str] = &["--lib", "--bins", "--tests"];

/// Which ignored tests run. They need programs that no other test needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// No ignored test.
    Skip,
    /// Those whose programs are built already.
    WhereBuilt,
    /// All of them. The tests build their programs.
    Run,
}

/// Builds and runs all tests, and the ignored ones as `ignored` says.
pub fn run(root: &Path, ignored: Ignored) -> Result<()> {
    run_built(root, &build(root)?, ignored, || ())
}

/// Runs all tests with binaries that are built already. Calls `started` when the first ones run. Prints the names
/// of the tests that it left out.
pub fn run_built(root: &Path, binaries: &Binaries, ignored: Ignored, started: impl FnOnce()) -> Result<()> {
    let skipped = match ignored {
        Ignored::Run => Vec::new(),
        Ignored::Skip => list_ignored(root, binaries)?,
        Ignored::WhereBuilt => ignored::without_programs(list_ignored(root, binaries)?, go::are_built)?,
    };
    let arguments = match ignored {
        Ignored::Skip => Vec::new(),
        Ignored::WhereBuilt | Ignored::Run => ignored::arguments(&skipped),
    };
    let mut times = TestTimes::new()?;
    let mut tests = cargo_test(root, binaries, &[ALL, &["--no-fail-fast"], &*arguments].concat());
    tests.env(times::RECORD, times.record());
    let mut started = Some(started);
    let result = run_lines(tests, |line| {
        times.read(line);
        if times.is_running() {
            started.take().into_iter().for_each(|started| started());
        }
    });
    eprintln!("{}", times.summary());
    print_skipped(&skipped);
    result
}

/// Runs the tests whose names contain one of `names`, and builds only what they need.
pub fn named(root: &Path, names: &[String], ignored: Ignored) -> Result<()> {
    let selected = Selected::find(root, names)?;
    ensure!(!selected.0.is_empty(), "the name of no test contains {}", names.join(" or "));
    let binaries = if selected.0.keys().all(|target| *target == Target::Unit) {
        build::binaries(root)
    } else {
        build::with_targets(root, &selected.build_arguments(), go::test_programs)?
    };
    let mut result = Ok(());
    for (target, filters) in &selected.0 {
        let mut arguments = [&target.arguments()[..], &["--no-fail-fast", "--"]].concat();
        if ignored == Ignored::Run {
            arguments.push("--include-ignored");
        }
        // The name of a binary alone means all of its tests.
        if !filters.contains("") {
            arguments.extend(filters.iter().map(String::as_str));
        }
        // All of them run. The first error is returned.
        result = result.and(run_command(cargo_test(root, &binaries, &arguments)));
    }
    result
}

/// Runs the tests that do not need the sandbox.
pub fn quick(root: &Path) -> Result<()> {
    let binaries = build::run(root, false, &[])?;
    go::in_each_module(root, &["test", "./..."])?;
    run_command(cargo_test(root, &binaries, &["--lib", "--bins"]))
}

/// Builds everything that the tests need. Runs the Go tests in parallel, because they do not need the Rust build.
pub fn build(root: &Path) -> Result<Binaries> {
    build::with_tests(root, || {
        go::test_programs()?;
        go::in_each_module(root, &["test", "./..."])
    })
}

fn cargo_test(root: &Path, binaries: &Binaries, arguments: &[&str]) -> Command {
    let mut tests = command(root, "cargo", &[&["test", "--locked", "--workspace"], arguments].concat());
    // A failed test prints objects and logs. A backtrace would push them out of logs that keep only the end.
    tests.env("RUST_BACKTRACE", "0");
    tests.env("CHANDLER_BIN", &binaries.chandler).env("CHANDLER_SANDBOX_BIN", &binaries.sandbox);
    tests.env("CHANDLER_TOOL", &binaries.driver).env("CHANDLER_AGENT_BIN", &binaries.agent);
    tests.envs(LESS_GARBAGE_COLLECTION);
    if io::stdout().is_terminal() && env::var_os(COLOR).is_none() {
        tests.env(COLOR, "always");
    }
    if env::var_os(TEST_THREADS).is_none() {
        tests.env(TEST_THREADS, test_threads().to_string());
    }
    tests
}

/// End-to-end tests mostly wait for other processes, so more of them run at the same time than there are cores.
fn test_threads() -> usize {
    3 * thread::available_parallelism().map_or(1, usize::from)
}

const LIST_IGNORED: [&str; 6] = ["--quiet", "--", "--ignored", "--list", "--format", "terse"];

fn list_ignored(root: &Path, binaries: &Binaries) -> Result<Vec<String>> {
    let listed = output(cargo_test(root, binaries, &[ALL, &LIST_IGNORED].concat()))?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Prints the tests that were left out and the command that runs them.
fn print_skipped(names: &[String]) {
    if !names.is_empty() {
        eprintln!("xtask: skipped {} ignored tests, which `cargo xtask test --full` runs:", names.len());
        for name in names {
            eprintln!("  {name}");
        }
    }
}
