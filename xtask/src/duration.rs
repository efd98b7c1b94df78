//! Formats durations.

use std::time::Duration;

/// Formats a duration such as `62m 05s`, rounded to the nearest second.
pub fn format_duration(duration: Duration) -> String {
    let seconds = (duration + Duration::from_millis(500)).as_secs();
    format!("{}m {:02}s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded() {
        for (milliseconds, expected) in [(499, "0m 00s"), (500, "0m 01s"), (59_600, "1m 00s")] {
            assert_eq!(format_duration(Duration::from_millis(milliseconds)), expected);
        }
    }
}
