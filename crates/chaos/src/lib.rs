//! Runs random sequences of user actions and faults against real managers and control planes, and checks that Chandler
//! reaches the state that users have asked for.
//!
//! `generate` makes a sequence from a seed, `model` predicts its end state, `run` performs it, and `invariants` judges the
//! recorded facts. `shrink` drops steps that a failure does not need.

mod action;
mod chart;
mod client_process;
mod environment;
mod etcd;
mod facts;
mod generate;
mod invariants;
mod manager;
mod model;
mod mover;
mod objects;
mod observe;
mod report;
mod run;
mod shrink;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use chandler_sandbox::{
    assets::{Assets, Binary, KubernetesVersion},
    progress::{self, ProgressReporter},
};

use crate::{
    action::Step,
    environment::Environment,
    report::{Failure, SequenceResult, Summary},
    shrink::{REPEATS, Shrinker},
};

const BINARIES: [Binary; 3] = [Binary::Etcd, Binary::KubeApiserver, Binary::Helm];
/// How long a failing sequence is shrunk.
const SHRINK_TIMEOUT: Duration = Duration::from_mins(10);

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of the `chandler` binary.
    pub chandler: PathBuf,
    /// The path of the package tool.
    pub tool: PathBuf,
    /// The number of sequences.
    pub sequences: u64,
    /// The seed of the first sequence. The next ones are counted up from it. `None` means a random seed.
    pub seed: Option<u64>,
    /// No sequence is started after this time. `None` means no limit.
    pub limit: Option<Duration>,
    /// The numbers of the steps that are performed. `None` means all.
    pub steps: Option<Vec<usize>>,
    /// Whether a failing sequence is shrunk.
    pub shrink: bool,
    /// The file to which the summary is written.
    pub json: Option<PathBuf>,
    /// The folder for logs and audit logs. `None` means a temporary folder.
    pub dir: Option<PathBuf>,
}

/// Runs sequences, prints a summary, and fails if an invariant was violated.
pub async fn run_sequences(options: Options) -> Result<()> {
    let Options { chandler, tool, sequences, seed, limit, steps, shrink, json, dir } = options;
    let progress = progress::display();
    let assets = find_programs(progress.as_ref()).await?;
    let temporary = tempfile::tempdir().context("creating a temporary folder")?;
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());
    let environment = Environment::start(assets, &dir, &chandler, &tool, progress.as_ref()).await?;
    let seed = seed.unwrap_or_else(|| fastrand::u64(0..1 << 32));
    progress.note(&format!("seed {seed}, generator {}, logs in {}", generate::VERSION, dir.display()));

    let mut chaos = Chaos { environment, progress, steps, shrink, runs: 0 };
    let mut summary = Summary { generator: generate::VERSION, seed, ..Summary::default() };
    let result = chaos.run(sequences, limit, &mut summary).await;
    chaos.environment.kill().await;
    // The results are printed even if the environment fails.
    summary.publish(json.as_deref())?;
    result?;
    ensure!(summary.failed == 0, "{} of {} sequences failed", summary.failed, summary.sequences.len());
    Ok(())
}

/// Finds or builds the programs for clusters of each Kubernetes version.
async fn find_programs(progress: &dyn ProgressReporter) -> Result<BTreeMap<KubernetesVersion, Assets>> {
    let oldest = Assets::ensure(&BINARIES, progress).await?;
    let mut programs = BTreeMap::new();
    for version in KubernetesVersion::PREBUILT {
        programs.insert(version, oldest.with_version(version, progress).await?);
    }
    Ok(programs)
}

struct Chaos {
    environment: Environment,
    progress: Box<dyn ProgressReporter>,
    steps: Option<Vec<usize>>,
    shrink: bool,
    /// The number of runs, including those that shrink a sequence.
    runs: u32,
}

impl Chaos {
    async fn run(&mut self, sequences: u64, limit: Option<Duration>, summary: &mut Summary) -> Result<()> {
        let start = Instant::now();
        for index in 0..sequences {
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                self.progress.note(&format!("the time is over after {index} of {sequences} sequences"));
                break;
            }
            let seed = generate::sequence_seed(summary.seed, index);
            let result = self.run_seed(seed).await.with_context(|| format!("running seed {seed}"))?;
            summary.add(result);
        }
        Ok(())
    }

    async fn run_seed(&mut self, seed: u64) -> Result<SequenceResult> {
        let steps = select(generate::sequence(seed), self.steps.as_deref())?;
        let start = Instant::now();
        let violations = self.run_steps(&format!("sequence with seed {seed}"), &steps).await?;
        let seconds = start.elapsed().as_secs();
        let mut failure = None;
        if !violations.is_empty() {
            self.progress.note(&format!("seed {seed} failed:\n  {}", violations.join("\n  ")));
            let mut found = Failure::new(seed, &steps);
            self.progress.note(&found.describe());
            if self.shrink {
                found = Failure::new(seed, &self.shorten(&steps).await?);
                self.progress.note(&format!("the shortest sequence found that fails\n{}", found.describe()));
            }
            failure = Some(found);
        }
        Ok(SequenceResult { seed, seconds, steps: steps.len(), violations, failure })
    }

    async fn run_steps(&mut self, what: &str, steps: &[Step]) -> Result<Vec<String>> {
        self.runs += 1;
        self.progress.begin(what, None);
        let namespace = format!("run-{}", self.runs);
        let violations = run::run(&mut self.environment, &namespace, steps, self.progress.as_ref()).await?;
        self.progress.finish(what);
        Ok(violations)
    }

    /// Returns the shortest sequence that is found to fail.
    async fn shorten(&mut self, steps: &[Step]) -> Result<Vec<Step>> {
        let deadline = Instant::now() + SHRINK_TIMEOUT;
        let mut shrinker = Shrinker::new(steps.to_vec());
        while let Some(candidate) = shrinker.candidate() {
            let mut failed = false;
            for repeat in 1..=REPEATS {
                if Instant::now() > deadline {
                    self.progress.note(&format!("shrinking stops after {SHRINK_TIMEOUT:?}"));
                    return Ok(shrinker.shortest().to_vec());
                }
                let what = format!("shrinking: {} steps, run {repeat}", candidate.len());
                failed = !self.run_steps(&what, &candidate).await?.is_empty();
                if failed {
                    break;
                }
            }
            shrinker.record(failed);
        }
        Ok(shrinker.shortest().to_vec())
    }
}

/// Returns the steps with the given numbers.
fn select(steps: Vec<Step>, numbers: Option<&[usize]>) -> Result<Vec<Step>> {
    let Some(numbers) = numbers else { return Ok(steps) };
    if let Some(unknown) = numbers.iter().find(|number| **number >= steps.len()) {
        bail!("there is no step {unknown}: the seed has the steps 0 to {}", steps.len().saturating_sub(1));
    }
    Ok(steps.into_iter().filter(|step| numbers.contains(&step.number)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_selected_by_number() {
        let steps = generate::sequence(1);
        assert_eq!(select(steps.clone(), None).unwrap(), steps);
        assert_eq!(select(steps.clone(), Some(&[3, 0])).unwrap(), [steps[0], steps[3]]);
        select(steps, Some(&[99])).unwrap_err();
    }
}
