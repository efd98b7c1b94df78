//! `chandler-hostile`: runs hostile inputs, each in a process of its own, and prints the time and memory within which each was
//! refused.

use std::{
    io::Read as _,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use chandler_hostile::{INPUTS, Input, Lab, Measurement, Needs, Outcome, markdown};
use clap::Parser;
use serde::{Deserialize, Serialize};

/// An input that takes longer is not refused.
const MAX_TIME: Duration = Duration::from_mins(1);
/// An input that takes more memory is not refused as it should be.
const MAX_MEBIBYTES: u64 = 300;
/// Characters of the reason of a refusal.
const MAX_REASON: usize = 1000;

/// Run hostile inputs, and print the time and memory within which each was refused
#[derive(Debug, Parser)]
struct Arguments {
    /// Only those that need neither much time nor much memory
    #[arg(long)]
    cheap: bool,
    /// Only those whose kind and name contain this text
    #[arg(long, default_value = "")]
    filter: String,
    /// Print the reasons of the refusals instead of a table
    #[arg(long)]
    reasons: bool,
    /// Run one input in this process
    #[arg(long, hide = true)]
    run: Option<String>,
}

/// What the process of an input prints.
#[derive(Serialize, Deserialize)]
struct Printed {
    measurement: Measurement,
    /// The reason of the refusal. `None` means that the input was accepted.
    refused: Option<String>,
}

fn main() -> Result<ExitCode> {
    let Arguments { cheap, filter, reasons, run } = Arguments::parse();
    if let Some(id) = run {
        let input = INPUTS.iter().find(|input| input.id() == id).context("there is no such input")?;
        let (measurement, refused) = Lab::new()?.attempt(input)?;
        // The output has to fit into a pipe.
        let refused = refused.map(|reason| reason.chars().take(MAX_REASON).collect());
        println!("{}", serde_json::to_string(&Printed { measurement, refused })?);
        return Ok(ExitCode::SUCCESS);
    }
    let chosen =
        INPUTS.iter().filter(|input| (!cheap || input.needs != Needs::Time) && input.id().contains(&filter));
    let mut outcomes = Vec::new();
    for input in chosen {
        let result = run_in_process(input);
        match &result {
            Ok((_, reason)) if reasons => println!("{}: {reason}", input.id()),
            Ok(_) => {}
            Err(error) => eprintln!("{}: not refused: {error:#}", input.id()),
        }
        let result = result.map(|(measurement, _)| measurement).map_err(|error| format!("{error:#}"));
        outcomes.push(Outcome { input, result });
    }
    if !reasons {
        print!("{}", markdown(&outcomes));
    }
    let all_refused = outcomes.iter().all(|outcome| outcome.result.is_ok());
    Ok(if all_refused { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs an input in a process of its own. Returns what it took, and the reason why it was refused.
fn run_in_process(input: &Input) -> Result<(Measurement, String)> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["--run", &input.id()])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a process")?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait()? {
            break status;
        }
        if started.elapsed() > MAX_TIME {
            process.kill()?;
            process.wait()?;
            bail!("it took longer than {} s", MAX_TIME.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        bail!("its process ended with {status}");
    }
    let mut output = String::new();
    process.stdout.take().context("the process has no output")?.read_to_string(&mut output)?;
    let Printed { measurement, refused } = serde_json::from_str(&output).context("reading its output")?;
    ensure!(measurement.bytes >> 20 < MAX_MEBIBYTES, "it took more than {MAX_MEBIBYTES} MiB of memory");
    match refused {
        Some(reason) if reason.contains(input.because) => Ok((measurement, reason)),
        Some(reason) => bail!("it was refused for another reason: {reason}"),
        None => bail!("it was accepted"),
    }
}
