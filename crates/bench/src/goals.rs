//! Measured values and their goals, as a table.

use std::{borrow::Cow, fmt::Write as _};

/// A measured value and the highest value that reaches the goal.
#[derive(Clone, Debug)]
pub struct Row {
    name: Cow<'static, str>,
    measured: f64,
    goal: Option<f64>,
    unit: &'static str,
}

pub fn row(name: impl Into<Cow<'static, str>>, measured: f64, goal: f64, unit: &'static str) -> Row {
    Row { name: name.into(), measured, goal: Some(goal), unit }
}

pub fn without_goal(name: impl Into<Cow<'static, str>>, measured: f64, unit: &'static str) -> Row {
    Row { name: name.into(), measured, goal: None, unit }
}

impl Row {
    /// Removes the goal unless it holds for what was measured.
    pub fn with_goal_if(self, holds: bool) -> Self {
        Self { goal: self.goal.filter(|_| holds), ..self }
    }
}

/// Returns a table that says of each goal whether it is reached.
pub fn table(title: &str, rows: &[Row]) -> String {
    let mut text = format!("\n{title}\n{:<50} {:>14} {:>14}\n", "", "measured", "goal");
    for Row { name, measured, goal, unit } in rows {
        let limit = goal.map_or_else(String::new, |goal| with_unit(&format!("≤ {goal}"), unit));
        let result = match goal {
            None => "",
            Some(goal) if measured <= goal => "reached",
            Some(_) => "not reached",
        };
        let measured = with_unit(&number(*measured), unit);
        let line = format!("{name:<50} {measured:>14} {limit:>14}  {result}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn with_unit(value: &str, unit: &str) -> String {
    format!("{value} {unit}").trim_end().to_owned()
}

/// Formats a number with at most three decimal places.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the line of a table whose name begins like this.
    pub fn line<'a>(table: &'a str, name: &str) -> &'a str {
        table.lines().find(|line| line.starts_with(name)).unwrap()
    }

    #[test]
    fn numbers_have_no_trailing_zeros() {
        for (value, text) in [(0.0, "0"), (3.0, "3"), (0.25, "0.25"), (500.0, "500"), (1.0004, "1")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_goal_that_does_not_hold_is_not_shown() {
        let rows = [row("time", 2.0, 1.0, "s"), row("count", 1.0, 1.0, "").with_goal_if(false)];
        let table = table("title", &rows);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[1], "title");
        assert!(lines[3].starts_with("time ") && lines[3].ends_with("≤ 1 s  not reached"), "{table}");
        assert!(lines[4].starts_with("count ") && lines[4].ends_with(" 1"), "{table}");
    }
}
