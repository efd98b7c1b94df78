//! The results of the cases.

use std::{fmt, time::Duration};

use serde::Serialize;

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "reason")]
pub enum Outcome {
    Passed,
    Failed(String),
    /// The tool does not have an optional ability that the case needs.
    Skipped(String),
}

/// The report of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseReport {
    pub name: &'static str,
    pub proves: &'static str,
    #[serde(flatten)]
    pub outcome: Outcome,
    #[serde(rename = "milliseconds", serialize_with = "milliseconds")]
    pub duration: Duration,
}

/// All cases in the order of the suite. Its text ends with the numbers of passed, failed and skipped cases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub cases: Vec<CaseReport>,
}

impl Report {
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    fn count(&self, which: impl Fn(&Outcome) -> bool) -> usize {
        self.cases.iter().filter(|case| which(&case.outcome)).count()
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (result, reason) = match &self.outcome {
            Outcome::Passed => ("ok", None),
            Outcome::Failed(reason) => ("FAILED", Some(reason)),
            Outcome::Skipped(reason) => ("skipped", Some(reason)),
        };
        write!(f, "{result:<8} {:>6.1} s  {:<32} {}", self.duration.as_secs_f64(), self.name, self.proves)?;
        reason.map_or(Ok(()), |reason| write!(f, "\n         {}", reason.replace('\n', "\n         ")))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in &self.cases {
            writeln!(f, "{case}")?;
        }
        let passed = self.count(|outcome| *outcome == Outcome::Passed);
        let skipped = self.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        write!(f, "{passed} passed, {} failed", self.failed())?;
        if skipped > 0 {
            write!(f, ", {skipped} skipped")?;
        }
        Ok(())
    }
}

fn milliseconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &'static str, outcome: Outcome) -> CaseReport {
        CaseReport { name, proves: "It holds.", outcome, duration: Duration::from_millis(1234) }
    }

    #[test]
    fn the_last_line_counts() {
        let mut report =
            Report { cases: vec![case("a", Outcome::Passed), case("b", Outcome::Failed("why".to_owned()))] };
        assert!(report.to_string().ends_with("\n1 passed, 1 failed"));
        report.cases.push(case("c", Outcome::Skipped("no hooks".to_owned())));
        assert!(report.to_string().ends_with("\n1 passed, 1 failed, 1 skipped"));
        assert_eq!(report.failed(), 1);
    }

    #[test]
    fn programs_read_outcome_and_reason() {
        let json = serde_json::to_value(case("b", Outcome::Failed("why".to_owned()))).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"name": "b", "proves": "It holds.", "outcome": "failed", "reason": "why", "milliseconds": 1234})
        );
    }
}
