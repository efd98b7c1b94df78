//! The programs under test: the manager's, and the package tool it runs.

use std::path::PathBuf;

use anyhow::Result;
use chandler_cli_support::programs;
use clap::Args;

#[derive(Debug, Args)]
pub struct Programs {
    /// The binary whose manager runs [default: chandler beside this program]
    #[arg(long, env = "CHANDLER_BIN", hide_env_values = true)]
    chandler: Option<PathBuf>,
    /// The package tool's binary [default: chandler-helm beside this program]
    #[arg(long, env = "CHANDLER_TOOL", hide_env_values = true)]
    tool: Option<PathBuf>,
}

impl Programs {
    pub fn find(self) -> Result<Found> {
        let Self { chandler, tool } = self;
        Ok(Found { chandler: programs::chandler(chandler)?, tool: programs::package_tool(tool)? })
    }
}

/// Where the programs are.
#[derive(Debug)]
pub struct Found {
    pub chandler: PathBuf,
    pub tool: PathBuf,
}
