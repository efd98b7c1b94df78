//! Formats the durations of steps.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use crate::duration::format_duration;

/// The maximum total duration. If the steps take longer, developers no longer run them before they push.
const BUDGET: Duration = Duration::from_hours(1);

/// The result of a step.
pub struct StepResult {
    pub step: &'static str,
    pub passed: bool,
    pub duration: Duration,
}

/// Displays a line such as `clippy: passed in 3m 07s`.
impl Display for StepResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} in {}", self.step, self.result(), format_duration(self.duration))
    }
}

impl StepResult {
    fn result(&self) -> &'static str {
        if self.passed { "passed" } else { "FAILED" }
    }
}

/// The results of all steps that have run, in order.
#[derive(Default)]
pub struct Summary(Vec<StepResult>);

impl Summary {
    pub fn push(&mut self, result: StepResult) {
        self.0.push(result);
    }

    fn total(&self) -> Duration {
        self.0.iter().map(|result| result.duration).sum()
    }

    /// Returns a warning if the total duration is over the budget.
    pub fn warning(&self) -> Option<String> {
        let total = self.total();
        (total > BUDGET).then(|| {
            let (total, budget) = (format_duration(total), format_duration(BUDGET));
            format!("warning: the steps took {total}, more than {budget}; make the slowest steps faster")
        })
    }
}

/// Displays a table with one row per step and the total as its last row.
impl Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const TOTAL: &str = "total";
        let names = self.0.iter().map(|result| result.step.len());
        let width = names.chain([TOTAL.len()]).max().unwrap_or_default();
        let mut row = |step: &str, result: &str, duration: Duration| {
            writeln!(formatter, "{step:width$}  {result:6}  {:>8}", format_duration(duration))
        };
        for result in &self.0 {
            row(result.step, result.result(), result.duration)?;
        }
        row(TOTAL, "", self.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(steps: &[(&'static str, bool, u64)]) -> Summary {
        let result =
            |&(step, passed, seconds)| StepResult { step, passed, duration: Duration::from_secs(seconds) };
        Summary(steps.iter().map(result).collect())
    }

    #[test]
    fn the_table_has_a_row_per_step_and_the_total() {
        let steps = summary(&[("formatting", true, 2), ("clippy", true, 187), ("tests", false, 3600)]);
        let expected = "\
formatting  passed    0m 02s
clippy      passed    3m 07s
tests       FAILED   60m 00s
total                63m 09s
";
        assert_eq!(steps.to_string(), expected);
        assert_eq!(summary(&[]).to_string(), "total            0m 00s\n");
        assert_eq!(steps.0[1].to_string(), "clippy: passed in 3m 07s");
    }

    #[test]
    fn more_than_an_hour_yields_a_warning() {
        for (seconds, total) in [(0, None), (1800, None), (1801, Some("60m 01s")), (3600, Some("90m 00s"))] {
            let warning = summary(&[("clippy", true, 1800), ("tests", false, seconds)]).warning();
            assert_eq!(warning.is_some(), total.is_some(), "{seconds}: {warning:?}");
            let has_total = total.is_none_or(|total| warning.is_some_and(|text| text.contains(total)));
            assert!(has_total, "{seconds}");
        }
    }
}
