//! `chandler-sandbox chaos`: runs random sequences of user actions and faults.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use chandler_chaos::Options;
use clap::Args;

use crate::programs::{ProgramArgs, ProgramPaths};

#[derive(Debug, Args)]
pub struct ChaosArgs {
    /// Number of sequences
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    sequences: u64,
    /// Seed of the first sequence; the next ones are counted up from it [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Start no sequence after this time [default: no limit]
    #[arg(long)]
    minutes: Option<u64>,
    /// Numbers of the steps to perform, such as 0,3,4, to replay a part of a sequence [default: all]
    #[arg(long, value_delimiter = ',')]
    steps: Option<Vec<usize>>,
    /// Do not look for a shorter sequence if one fails
    #[arg(long)]
    no_shrink: bool,
    /// Also write the summary to this file
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Empty folder for logs and audit logs [default: a temporary folder]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl ChaosArgs {
    fn options(self) -> Result<Options> {
        let Self { sequences, seed, minutes, steps, no_shrink, json, programs, dir } = self;
        let ProgramPaths { chandler, tool } = programs.find()?;
        let limit = minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
        Ok(Options { chandler, tool, sequences, seed, limit, steps, shrink: !no_shrink, json, dir })
    }
}

pub async fn run(arguments: ChaosArgs) -> Result<()> {
    tokio::select! {
        done = chandler_chaos::run_sequences(arguments.options()?) => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}
