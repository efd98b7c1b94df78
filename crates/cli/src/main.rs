//! The `chandler` binary.

mod address_flags;
mod api_reference;
mod bundle;
mod catalog;
mod connection;
mod control;
mod crds;
mod describe;
mod diff;
mod doctor;
mod get;
mod history;
mod hooks;
mod hub;
mod lease;
mod log_level;
mod logging;
mod logs;
mod manager;
mod object_argument;
mod output;
mod packages;
mod plan;
mod planner_flags;
mod progress;
mod quota_flags;
mod receiver;
mod resume;
mod retry;
mod rollback;
mod rollout;
mod source;
mod support_bundle;
mod suspend;
mod tenant_flags;
mod tool_flags;
mod traces;
mod tunnel;
mod tunnel_flags;
mod upgrade_check;
mod where_commit;
mod yaml_documents;

use std::{path::Path, process::ExitCode};

use chandler_cli_support::{print_completion, runtime};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Manage the add-ons of Cluster API clusters: install, upgrade, monitor and remove them.
#[derive(Debug, Parser)]
#[command(name = "chandler", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the add-ons of clusters and their state
    Get(get::GetArgs),
    /// Show the details of a placement, a release or a cluster, and what to do next
    Describe(describe::DescribeArgs),
    /// Check a management cluster for problems and show how to fix them
    ///
    /// Exit codes: 0 if there is no problem, 1 if there is one.
    Doctor(doctor::DoctorArgs),
    Plan(plan::PlanArgs),
    Diff(diff::DiffArgs),
    History(history::HistoryArgs),
    Logs(logs::LogsArgs),
    LogLevel(log_level::LogLevelArgs),
    Suspend(suspend::SuspendArgs),
    Resume(resume::ResumeArgs),
    Retry(retry::RetryArgs),
    /// Show, pause, resume and abort the rollout of a placement, and leave clusters out
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    Rollback(rollback::RollbackArgs),
    SupportBundle(support_bundle::SupportBundleArgs),
    /// Run the controllers of a management cluster
    Manager(Box<manager::ManagerArgs>),
    /// Run the hub of tunnels, which clusters behind NAT connect to
    Hub(Box<hub::HubArgs>),
    /// Manage the registration of the Cluster API runtime hooks
    #[command(subcommand)]
    Hooks(hooks::HooksCommand),
    /// List catalogs, search for charts and show them
    #[command(subcommand)]
    Catalog(catalog::CatalogCommand),
    /// List Sources, show and poll them, suspend, resume, pin and unpin them
    #[command(subcommand)]
    Source(source::SourceCommand),
    Where(where_commit::WhereArgs),
    /// Reach clusters behind NAT through tunnels
    #[command(subcommand)]
    Tunnel(tunnel::TunnelCommand),
    /// Migrate plain manifests to bundles
    #[command(subcommand)]
    Bundle(bundle::BundleCommand),
    UpgradeCheck(upgrade_check::UpgradeCheckArgs),
    /// Print the CustomResourceDefinitions, to be piped into `kubectl apply -f -`
    Crds,
    /// Print a shell completion script
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print a reference as Markdown
    #[command(hide = true)]
    Reference {
        /// The reference to print
        subject: Subject,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    /// The commands
    Cli,
    /// The kinds
    Api,
}

fn main() -> ExitCode {
    chandler_cli_support::main(|| run(parse()))
}

/// Parses the command line. If started as a kubectl plugin, help texts show `kubectl chandler`.
fn parse() -> Cli {
    let program = std::env::args_os().next().unwrap_or_default();
    let plugin = Path::new(&program).file_stem().is_some_and(|name| name == "kubectl-chandler");
    let name = if plugin { "kubectl chandler" } else { "chandler" };
    let matches = Cli::command().bin_name(name).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { command } = cli;
    match command {
        // They have exit codes of their own.
        Command::UpgradeCheck(arguments) => return Ok(upgrade_check::run(arguments)),
        Command::Plan(arguments) => return Ok(plan::run(arguments)),
        Command::Diff(arguments) => return Ok(diff::run(arguments)),
        Command::Tunnel(command) => return runtime()?.block_on(tunnel::run(command)),
        Command::Manager(arguments) => runtime()?.block_on(manager::run(*arguments)),
        Command::Hub(arguments) => runtime()?.block_on(hub::run(*arguments)),
        Command::Hooks(command) => runtime()?.block_on(hooks::run(command)),
        Command::Get(arguments) => runtime()?.block_on(get::run(arguments)),
        Command::Describe(arguments) => runtime()?.block_on(describe::run(arguments)),
        Command::Doctor(arguments) => runtime()?.block_on(doctor::run(arguments)),
        Command::History(arguments) => runtime()?.block_on(history::run(arguments)),
        Command::Logs(arguments) => runtime()?.block_on(logs::run(arguments)),
        Command::LogLevel(arguments) => runtime()?.block_on(log_level::run(arguments)),
        Command::Suspend(arguments) => runtime()?.block_on(suspend::run(arguments)),
        Command::Resume(arguments) => runtime()?.block_on(resume::run(arguments)),
        Command::Retry(arguments) => runtime()?.block_on(retry::run(arguments)),
        Command::Rollout(command) => runtime()?.block_on(rollout::run(command)),
        Command::Rollback(arguments) => runtime()?.block_on(rollback::run(arguments)),
        Command::SupportBundle(arguments) => runtime()?.block_on(support_bundle::run(arguments)),
        Command::Catalog(command) => runtime()?.block_on(catalog::run(command)),
        Command::Source(command) => runtime()?.block_on(source::run(command)),
        Command::Where(arguments) => runtime()?.block_on(where_commit::run(arguments)),
        Command::Bundle(command) => runtime()?.block_on(bundle::run(command)),
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
    fn command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn plans_are_made_of_files_and_diffs_of_objects() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        for line in [
            "chandler plan -f hello.yaml",
            "chandler plan -f - -f policies -R --summary -o json",
            "chandler diff hcp/hello --cluster alpha",
            "chandler diff helmreleaseproxy hello-alpha -n fleet -o yaml",
        ] {
            assert!(parse(line), "{line}");
        }
        for line in ["chandler plan", "chandler plan hello.yaml", "chandler diff", "chandler diff a b c"] {
            assert!(!parse(line), "{line}");
        }
    }

    #[test]
    fn what_is_resumed_is_a_placement_or_a_sync() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        for line in [
            "chandler resume hcp/hello --cluster alpha",
            "chandler resume sync base --namespace fleet",
            "chandler suspend exti/hello -n fleet -o json",
            "chandler retry hello",
        ] {
            assert!(parse(line), "{line}");
        }
        for line in ["chandler resume", "chandler resume sync", "chandler suspend", "chandler retry a b"] {
            assert!(!parse(line), "{line}");
        }
    }
}
