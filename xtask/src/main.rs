//! The project's own commands: `cargo xtask --help`.

mod bench;
mod build;
mod ci;
mod command;
mod demo;
mod dist;
mod generate;
mod go;
mod rights;
mod supply_chain;
mod test;
mod tools;
mod workflows;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's own commands.
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
        /// Optimised, for use
        #[arg(long)]
        release: bool,
    },
    /// Write the generated files: code of the proto, CRDs, references of the API, the CLIs and the RBAC rules
    Generate,
    /// Run every test
    Test {
        /// Leave out the tests that need the sandbox
        #[arg(long, conflicts_with = "full")]
        quick: bool,
        /// Run also the ignored tests, which need further programs
        #[arg(long)]
        full: bool,
    },
    /// Show the main job on clusters of this machine
    Demo {
        /// Leave when the add-on is ready everywhere
        #[arg(long)]
        exit: bool,
    },
    /// Measure what the controllers cost, with the release build; arguments are those of `chandler-sandbox bench`
    Bench {
        /// For example `fleet --clusters 8 --releases 10 --json FILE`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Make what a release consists of: chart, manifest, and components for clusterctl and the Cluster API Operator
    Dist(dist::DistArgs),
    /// Licences, bans and sources of what is linked, as `deny.toml` says
    Deny,
    /// Whether something is known against what is linked; asks databases on the internet
    Advisories,
    /// Lint the workflows of GitHub Actions
    Workflows,
    /// Everything that has to pass before a change lands
    Ci,
}

fn main() -> Result<()> {
    let Xtask { task } = Xtask::parse();
    let root = root()?;
    match task {
        Task::Build { release } => {
            build::run(&root, release, &[]).map(|built| println!("{}", built.chandler.display()))
        }
        Task::Generate => generate::run(&root, &build::run(&root, false, &[])?),
        Task::Test { quick: true, .. } => test::quick(&root),
        Task::Test { quick: false, full } => test::run(&root, full),
        Task::Demo { exit } => demo::run(&root, exit),
        Task::Bench { arguments } => bench::run(&root, &arguments),
        Task::Dist(arguments) => dist::run(&root, arguments),
        Task::Deny => supply_chain::deny(&root),
        Task::Advisories => supply_chain::advisories(&root),
        Task::Workflows => workflows::lint(&root),
        Task::Ci => ci::run(&root),
    }
}

fn root() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?)
}
