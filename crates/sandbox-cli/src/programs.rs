//! The binaries that the demo, the benchmark and the chaos test run: `chandler` and its package tool.

use std::path::PathBuf;

use anyhow::Result;
use chandler_cli_support::programs;
use clap::Args;

#[derive(Debug, Args)]
pub struct ProgramArgs {
    /// Path of the `chandler` binary [default: chandler in the folder of this program]
    #[arg(long, env = "CHANDLER_BIN", hide_env_values = true)]
    chandler: Option<PathBuf>,
    /// Path of the package tool [default: chandler-helm in the folder of this program]
    #[arg(long, env = "CHANDLER_TOOL", hide_env_values = true)]
    tool: Option<PathBuf>,
}

impl ProgramArgs {
    pub fn find(self) -> Result<ProgramPaths> {
        let Self { chandler, tool } = self;
        Ok(ProgramPaths { chandler: programs::chandler(chandler)?, tool: programs::package_tool(tool)? })
    }
}

/// The paths of the binaries.
#[derive(Debug)]
pub struct ProgramPaths {
    pub chandler: PathBuf,
    pub tool: PathBuf,
}
