//! The summary of a run as JSON, and the text about a failed sequence.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::action::Step;

/// The results of all sequences.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The version of the generator, which determines the sequence of a seed.
    pub generator: u32,
    /// The seed of the first sequence.
    pub seed: u64,
    pub passed: usize,
    pub failed: usize,
    pub sequences: Vec<SequenceResult>,
}

/// The result of a sequence.
#[derive(Clone, Debug, Serialize)]
pub struct SequenceResult {
    pub seed: u64,
    pub seconds: u64,
    pub steps: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// How to repeat a failure.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The command line that runs the shortest failing sequence that was found.
    pub replay: String,
    pub steps: Vec<Step>,
}

impl Failure {
    pub fn new(seed: u64, steps: &[Step]) -> Self {
        let numbers: Vec<String> = steps.iter().map(|step| step.number.to_string()).collect();
        let replay = format!("cargo xtask chaos --sequences 1 --seed {seed} --steps {}", numbers.join(","));
        Self { replay, steps: steps.to_vec() }
    }

    /// Returns the command line and the actions as text.
    pub fn describe(&self) -> String {
        let mut text = format!("to replay it: {}\n", self.replay);
        for step in &self.steps {
            let _ = writeln!(text, "  {step}");
        }
        text
    }
}

impl Summary {
    pub fn add(&mut self, result: SequenceResult) {
        if result.violations.is_empty() {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        self.sequences.push(result);
    }

    /// Prints the summary and writes it to a file, if one is given.
    pub fn publish(&self, file: Option<&Path>) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        print!("{text}");
        match file {
            Some(path) => std::fs::write(path, text).with_context(|| format!("writing {}", path.display())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::sequence;

    #[test]
    fn a_failure_is_replayed_with_its_seed_and_its_steps() {
        let steps = sequence(5);
        let failure = Failure::new(5, &[steps[0], steps[3]]);
        assert_eq!(failure.replay, "cargo xtask chaos --sequences 1 --seed 5 --steps 0,3");
        assert_eq!(failure.describe().lines().count(), 3);
    }

    #[test]
    fn the_summary_counts_and_lists_seeds() {
        let mut summary = Summary { seed: 5, ..Summary::default() };
        let result =
            |seed, violations| SequenceResult { seed, seconds: 1, steps: 7, violations, failure: None };
        summary.add(result(5, Vec::new()));
        summary.add(result(6, vec!["wrong".to_owned()]));
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
        assert_eq!(json["sequences"][1]["seed"], 6);
        assert!(json["sequences"][0].get("violations").is_none());
    }
}
