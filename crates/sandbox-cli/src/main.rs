//! The `chandler-sandbox` binary, a tool for developers. A release contains it for the demo. See `chandler-sandbox --help`.

#[cfg(feature = "checks")]
mod bench;
#[cfg(feature = "checks")]
mod chaos;
mod demo;
mod kubectl;
mod programs;
mod sandbox;
#[cfg(feature = "checks")]
mod tool;

use std::process::ExitCode;

use chandler_cli_support::{print_completion, reference, runtime};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

/// Runs real Kubernetes clusters on this machine without containers, to try, test and measure Chandler.
#[derive(Debug, Parser)]
#[command(name = "chandler-sandbox", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Sandbox(sandbox::SandboxCommand),
    /// Run a demo on local clusters: Chandler installs add-ons on them
    Demo(demo::DemoArgs),
    /// Test package tools against the operation protocol
    #[cfg(feature = "checks")]
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    /// Measure the resource usage of the controllers
    #[cfg(feature = "checks")]
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Run random sequences of user actions and faults, and check that Chandler reaches the desired state
    #[cfg(feature = "checks")]
    Chaos(chaos::ChaosArgs),
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the reference of all commands as Markdown
    #[command(hide = true)]
    Reference,
}

fn main() -> ExitCode {
    chandler_cli_support::main(|| run(Cli::parse()).map(|()| ExitCode::SUCCESS))
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let Cli { command } = cli;
    match command {
        Command::Sandbox(command) => runtime()?.block_on(sandbox::run(command)),
        Command::Demo(arguments) => runtime()?.block_on(demo::run(arguments)),
        #[cfg(feature = "checks")]
        Command::Tool(command) => runtime()?.block_on(tool::run(command)),
        #[cfg(feature = "checks")]
        Command::Bench(command) => runtime()?.block_on(bench::run(command)),
        #[cfg(feature = "checks")]
        Command::Chaos(arguments) => runtime()?.block_on(chaos::run(arguments)),
        Command::Completion { shell } => {
            print_completion::<Cli>(shell);
            Ok(())
        }
        Command::Reference => {
            print!("{}", reference::<Cli>());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Cli::command().debug_assert();
    }
}
