//! Runs steps one after the other until one fails, and prints the duration of each.

use std::{path::Path, time::Instant};

use anyhow::{Context as _, Result};

use super::timing::{StepResult, Summary};

/// A check that must pass.
pub struct Step {
    pub name: &'static str,
    pub run: fn(&Path) -> Result<()>,
}

/// Runs the steps until one fails. Prints the table of durations in either case.
pub fn run(root: &Path, steps: &[Step]) -> Result<()> {
    let mut summary = Summary::default();
    let result = steps.iter().try_for_each(|step| run_step(root, step, &mut summary));
    eprint!("\n{summary}");
    if let Some(warning) = summary.warning() {
        eprintln!("{warning}");
    }
    result
}

fn run_step(root: &Path, step: &Step, summary: &mut Summary) -> Result<()> {
    let start = Instant::now();
    let result = (step.run)(root);
    let step_result = StepResult { step: step.name, passed: result.is_ok(), duration: start.elapsed() };
    eprintln!("xtask: {step_result}");
    summary.push(step_result);
    result.with_context(|| format!("step `{}` failed", step.name))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn the_first_failure_stops_the_run_and_names_the_step() {
        let steps = [
            Step { name: "passes", run: |_| Ok(()) },
            Step { name: "fails", run: |_| bail!("a file differs") },
            Step { name: "never runs", run: |_| bail!("ran after a failure") },
        ];
        assert!(run(Path::new("/"), &steps[..1]).is_ok());
        let failure = run(Path::new("/"), &steps).map_err(|error| format!("{error:#}"));
        assert_eq!(failure, Err("step `fails` failed: a file differs".to_owned()));
    }
}
