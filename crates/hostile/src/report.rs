//! The results as a table.

use std::{fmt::Write as _, time::Duration};

use crate::{Input, Measurement};

/// The result of an input.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub input: &'static Input,
    /// `Err` says why the input was not refused as it should be.
    pub result: Result<Measurement, String>,
}

/// Returns a table in Markdown.
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut table = "| input | what is hostile about it | time | memory |\n|---|---|---|---|\n".to_owned();
    for Outcome { input, result } in outcomes {
        let (time, memory) = match result {
            Ok(Measurement { time, bytes }) => (shown_time(*time), shown_memory(*bytes)),
            Err(reason) => (format!("**not refused**: {reason}"), String::new()),
        };
        let _ = writeln!(table, "| {} | {} | {time} | {memory} |", input.id(), input.what);
    }
    table
}

/// Returns the time rounded up such that it is about the same every time.
fn shown_time(time: Duration) -> String {
    match time.as_millis() {
        ..10 => "10 ms".to_owned(),
        millis @ ..1000 => format!("{} ms", round_up(millis)),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

fn shown_memory(bytes: u64) -> String {
    format!("{} MiB", round_up(u128::from(bytes.div_ceil(1 << 20).max(1))))
}

/// Rounds up to one digit.
fn round_up(number: u128) -> u128 {
    let unit = 10_u128.pow(number.checked_ilog10().unwrap_or_default());
    number.next_multiple_of(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::INPUTS;

    #[test]
    fn results_are_rounded_up() {
        let rows = [(0, "10 ms"), (9, "10 ms"), (11, "20 ms"), (110, "200 ms"), (5040, "5.0 s")];
        for (millis, shown) in rows {
            assert_eq!(shown_time(Duration::from_millis(millis)), shown);
        }
        for (bytes, shown) in [(0, "1 MiB"), (1 << 20, "1 MiB"), (12 << 20, "20 MiB"), (101 << 20, "200 MiB")]
        {
            assert_eq!(shown_memory(bytes), shown);
        }
    }

    #[test]
    fn what_is_not_refused_is_shown() {
        let measured = Measurement { time: Duration::from_millis(3), bytes: 5 << 20 };
        let outcomes = [
            Outcome { input: &INPUTS[0], result: Ok(measured) },
            Outcome { input: &INPUTS[1], result: Err("it died".to_owned()) },
        ];
        let table = markdown(&outcomes);
        assert!(table.contains("| 10 ms | 5 MiB |") && table.contains("**not refused**: it died"), "{table}");
    }
}
