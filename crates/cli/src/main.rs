//! The `chandler` binary: `chandler --help`.

mod api_reference;
mod catalog;
mod connection;
mod control;
mod crds;
mod describe;
mod doctor;
mod get;
mod hooks;
mod log_level;
mod logging;
mod logs;
mod manager;
mod output;
mod packages;
mod progress;
mod support_bundle;
mod traces;
mod upgrade_check;

use std::{path::Path, process::ExitCode};

use chandler_cli_support::{print_completion, runtime};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Fits out Cluster API clusters: installs, upgrades, watches and removes their add-ons.
#[derive(Debug, Parser)]
#[command(name = "chandler", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show add-ons and clusters: what is ready, and what is not and why
    Get(get::GetArgs),
    /// Show a placement, a release or a cluster in depth: why, since when, and what to do next
    Describe(describe::DescribeArgs),
    /// Examine a management cluster and say what to do; fails if there is a problem
    Doctor(doctor::DoctorArgs),
    Logs(logs::LogsArgs),
    LogLevel(log_level::LogLevelArgs),
    SupportBundle(support_bundle::SupportBundleArgs),
    /// Run the controllers against a management cluster
    Manager(Box<manager::ManagerArgs>),
    /// The runtime hooks by which Cluster API asks Chandler
    #[command(subcommand)]
    Hooks(hooks::HooksCommand),
    /// What the catalogs of a management cluster offer
    #[command(subcommand)]
    Catalog(catalog::CatalogCommand),
    UpgradeCheck(upgrade_check::UpgradeCheckArgs),
    /// Print the custom resource definitions, to be piped into `kubectl apply -f -`
    Crds,
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print a reference as Markdown
    #[command(hide = true)]
    Reference {
        /// What it is about
        subject: Subject,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    /// All commands
    Cli,
    /// All kinds
    Api,
}

fn main() -> ExitCode {
    chandler_cli_support::main(|| run(parse()))
}

/// As a plugin of kubectl, help texts speak of `kubectl chandler`.
fn parse() -> Cli {
    let called = std::env::args_os().next().unwrap_or_default();
    let plugin = Path::new(&called).file_stem().is_some_and(|name| name == "kubectl-chandler");
    let name = if plugin { "kubectl chandler" } else { "chandler" };
    let matches = Cli::command().bin_name(name).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { command } = cli;
    match command {
        // Its exit codes mean something.
        Command::UpgradeCheck(arguments) => return Ok(upgrade_check::run(arguments)),
        Command::Manager(arguments) => runtime()?.block_on(manager::run(*arguments)),
        Command::Hooks(command) => runtime()?.block_on(hooks::run(command)),
        Command::Get(arguments) => runtime()?.block_on(get::run(arguments)),
        Command::Describe(arguments) => runtime()?.block_on(describe::run(arguments)),
        Command::Doctor(arguments) => runtime()?.block_on(doctor::run(arguments)),
        Command::Logs(arguments) => runtime()?.block_on(logs::run(arguments)),
        Command::LogLevel(arguments) => runtime()?.block_on(log_level::run(arguments)),
        Command::SupportBundle(arguments) => runtime()?.block_on(support_bundle::run(arguments)),
        Command::Catalog(command) => runtime()?.block_on(catalog::run(command)),
        Command::Crds => {
            print!("{}", crds::yaml()?);
            Ok(())
        }
        Command::Completion { shell } => {
            print_completion::<Cli>(shell);
            Ok(())
        }
        Command::Reference { subject } => {
            print!("{}", reference(subject)?);
            Ok(())
        }
    }
    .map(|()| ExitCode::SUCCESS)
}

fn reference(subject: Subject) -> anyhow::Result<String> {
    match subject {
        Subject::Cli => Ok(chandler_cli_support::reference::<Cli>()),
        Subject::Api => api_reference::markdown(&chandler_api::crds()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
