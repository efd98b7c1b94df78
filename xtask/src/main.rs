//! The development tasks of this repository: see `cargo xtask --help`.

mod build;
mod ci;
mod command;
mod demo;
mod dist;
mod duration;
mod generate;
mod go;
mod hostile;
mod image;
mod licenses;
mod rbac;
mod reproducible;
mod sandbox;
mod sbom;
mod sha256;
mod supply_chain;
mod test;
mod tools;
mod workflows;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::test::Ignored;

/// The development tasks of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build `chandler`, its Helm driver and `chandler-sandbox` into one folder
    Build {
        /// Build with optimizations
        #[arg(long)]
        release: bool,
    },
    /// Write the generated files: protobuf code, CRDs, references of the API, the CLIs and the RBAC rules
    Generate,
    /// Run all tests, or those with a name
    Test {
        /// A part of the names of tests, as `e2e::sync` or `a_push_is_applied`: only these run, and only what they need is
        /// built
        #[arg(conflicts_with = "quick")]
        names: Vec<String>,
        /// Skip the tests that need the sandbox
        #[arg(long, conflicts_with = "full")]
        quick: bool,
        /// Also run the ignored tests, which need more programs
        #[arg(long)]
        full: bool,
    },
    /// Run the demo on local clusters
    Demo {
        /// Exit when the add-ons are ready on all clusters
        #[arg(long)]
        exit: bool,
    },
    /// Benchmark the controllers with the release build; takes the arguments of `chandler-sandbox bench`
    Bench {
        /// For example `fleet --clusters 8 --releases 10 --json FILE`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Run random sequences of user actions and faults; takes the arguments of `chandler-sandbox chaos`
    Chaos {
        /// For example `--sequences 8 --seed 1 --minutes 6`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure the time and memory within which hostile inputs are refused, and print a table
    Hostile {
        /// Replace the table in `docs/security.md`
        #[arg(long)]
        write: bool,
    },
    /// Build the files of a release: chart, manifest, and components for clusterctl and the Cluster API Operator
    Dist(dist::DistArgs),
    /// Build the images as OCI layouts from static binaries, without a container daemon
    Image(image::ImageArgs),
    /// Write the SBOMs (CycloneDX) of the programs
    Sbom(sbom::SbomArgs),
    /// Build the binaries of a release twice, in different folders, and compare them; takes as long as two releases
    Reproducible(reproducible::ReproducibleArgs),
    /// Check licenses, bans and sources of the dependencies against `deny.toml`
    Deny,
    /// Check the dependencies for known vulnerabilities; needs access to the internet
    Advisories,
    /// Lint the GitHub Actions workflows
    Workflows,
    /// Run the checks that need no tests: formatting, lints, crates alone, licenses and advisories
    Check,
    /// Run everything that must pass before a change is merged: the build, all tests, and beside them the checks
    Ci,
}

fn main() -> Result<()> {
    let Xtask { task } = Xtask::parse();
    let root = root()?;
    match task {
        Task::Build { release } => {
            build::run(&root, release, &[]).map(|binaries| println!("{}", binaries.chandler.display()))
        }
        Task::Generate => generate::build_and_run(&root),
        Task::Test { quick: true, .. } => test::quick(&root),
        Task::Test { names, quick: false, full } => {
            let ignored = if full { Ignored::Run } else { Ignored::Skip };
            if names.is_empty() { test::run(&root, ignored) } else { test::named(&root, &names, ignored) }
        }
        Task::Demo { exit } => demo::run(&root, exit),
        Task::Bench { arguments } => sandbox::bench(&root, &arguments),
        Task::Chaos { arguments } => sandbox::run(&root, false, "chaos", &arguments),
        Task::Hostile { write } => hostile::run(&root, write),
        Task::Dist(arguments) => dist::run(&root, arguments),
        Task::Image(arguments) => image::run(&root, &arguments),
        Task::Sbom(arguments) => sbom::run(&root, &arguments),
        Task::Reproducible(arguments) => reproducible::run(&root, &arguments),
        Task::Deny => supply_chain::deny(&root),
        Task::Advisories => supply_chain::advisories(&root),
        Task::Workflows => workflows::lint(&root),
        Task::Check => ci::check(&root),
        Task::Ci => ci::run(&root),
    }
}

fn root() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?)
}
