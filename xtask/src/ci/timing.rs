//! How long the steps took, as text.

use std::{
    fmt::{self, Display},
    time::Duration,
};

/// The longest that all steps together should take. Beyond it, people stop running them before they push.
const BUDGET: Duration = Duration::from_hours(1);

/// A step that ended.
pub struct Ended {
    pub step: &'static str,
    pub passed: bool,
    pub took: Duration,
}

/// Displays a line such as `clippy: passed in 3m 07s`.
impl Display for Ended {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "{}: {} in {}", self.step, self.result(), minutes(self.took))
    }
}

impl Ended {
    fn result(&self) -> &'static str {
        if self.passed { "passed" } else { "FAILED" }
    }
}

/// All steps that ended, in order.
#[derive(Default)]
pub struct Summary(Vec<Ended>);

impl Summary {
    pub fn push(&mut self, ended: Ended) {
        self.0.push(ended);
    }

    fn total(&self) -> Duration {
        self.0.iter().map(|ended| ended.took).sum()
    }

    /// Returns a warning if the steps took longer than they should.
    pub fn warning(&self) -> Option<String> {
        let total = self.total();
        (total > BUDGET).then(|| {
            let (total, budget) = (minutes(total), minutes(BUDGET));
            format!(
                "warning: the steps took {total}, which is more than {budget}; make the slowest ones faster"
            )
        })
    }
}

/// Displays a table with one row per step and the sum as its last row.
impl Display for Summary {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUM: &str = "sum";
        let width = self.0.iter().map(|ended| ended.step.len()).chain([SUM.len()]).max().unwrap_or_default();
        let mut row = |step: &str, result: &str, took: Duration| {
            writeln!(text, "{step:width$}  {result:6}  {:>8}", minutes(took))
        };
        for ended in &self.0 {
            row(ended.step, ended.result(), ended.took)?;
        }
        row(SUM, "", self.total())
    }
}

/// A duration such as `62m 05s`, rounded to the nearest second.
fn minutes(duration: Duration) -> String {
    let seconds = (duration + Duration::from_millis(500)).as_secs();
    format!("{}m {:02}s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(steps: &[(&'static str, bool, u64)]) -> Summary {
        let ended = |&(step, passed, seconds)| Ended { step, passed, took: Duration::from_secs(seconds) };
        Summary(steps.iter().map(ended).collect())
    }

    #[test]
    fn the_table_has_a_row_per_step_and_the_sum() {
        let shown = summary(&[("formatting", true, 2), ("clippy", true, 187), ("tests", false, 3600)]);
        let expected = "\
formatting  passed    0m 02s
clippy      passed    3m 07s
tests       FAILED   60m 00s
sum                  63m 09s
";
        assert_eq!(shown.to_string(), expected);
        assert_eq!(summary(&[]).to_string(), "sum            0m 00s\n");
        assert_eq!(shown.0[1].to_string(), "clippy: passed in 3m 07s");
    }

    #[test]
    fn only_more_than_an_hour_is_warned_about() {
        for (seconds, warned) in [(0, None), (1800, None), (1801, Some("60m 01s")), (3600, Some("90m 00s"))] {
            let warning = summary(&[("clippy", true, 1800), ("tests", false, seconds)]).warning();
            assert_eq!(warning.is_some(), warned.is_some(), "{seconds}: {warning:?}");
            let names_sum = warned.is_none_or(|sum| warning.is_some_and(|text| text.contains(sum)));
            assert!(names_sum, "{seconds}");
        }
    }

    #[test]
    fn durations_are_rounded() {
        for (milliseconds, shown) in [(499, "0m 00s"), (500, "0m 01s"), (59_600, "1m 00s")] {
            assert_eq!(minutes(Duration::from_millis(milliseconds)), shown);
        }
    }
}
