//! The `chandler-sandbox` binary: `chandler-sandbox --help`. It is for machines of developers and is not shipped.

mod bench;
mod demo;
mod kubectl;
mod programs;
mod sandbox;
mod tool;

use std::process::ExitCode;

use chandler_cli_support::{print_completion, reference, runtime};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

/// Real Kubernetes on this machine without containers, and what Chandler shows, proves and measures on it.
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
    /// Show the main job on clusters of this machine: an add-on put on two clusters
    Demo(demo::DemoArgs),
    /// Package tools and the contract that they keep
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    /// Measure what the controllers cost
    #[command(subcommand)]
    Bench(bench::BenchCommand),
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
        Command::Tool(command) => runtime()?.block_on(tool::run(command)),
        Command::Bench(command) => runtime()?.block_on(bench::run(command)),
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
