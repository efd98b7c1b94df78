//! Conversions and percentiles of measured values.

use std::time::Duration;

/// Converts a count, which is far below the limit of exact floats.
pub fn as_float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Rounds to three decimal places.
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

pub fn seconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64())
}

/// Converts a value that was measured for a duration to that of a minute.
pub fn per_minute(value: f64, duration: Duration) -> f64 {
    value * 60.0 / duration.as_secs_f64().max(0.001)
}

/// Returns the smallest value that half of the values do not exceed.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// Returns the smallest value that the given percentage of the values does not exceed.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        for (percent, expected) in [(50, 100.0), (99, 198.0), (100, 200.0), (0, 1.0)] {
            assert!((percentile(&values, percent) - expected).abs() < 1e-9, "{percent} %");
        }
        assert!(percentile(&[], 50).abs() < 1e-9);
    }

    #[test]
    fn values_are_converted_to_a_minute() {
        for (seconds, expected) in [(60, 0.5), (30, 1.0), (120, 0.25)] {
            let converted = per_minute(0.5, Duration::from_secs(seconds));
            assert!((converted - expected).abs() < 1e-9, "{seconds} s: {converted}");
        }
    }
}
