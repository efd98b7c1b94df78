//! Measures time and memory of this process and of the Helm driver.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// The time and memory that an input took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    pub time: Duration,
    /// The growth of resident memory, at its peak.
    pub bytes: u64,
}

/// A measurement that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    at: Instant,
    before: u64,
    driver: Option<(u32, u64)>,
}

impl Started {
    /// Begins a measurement of this process and of the driver, if there is one.
    pub fn now(driver: Option<u32>) -> Self {
        reset_peak("self");
        let driver = driver.map(|pid| {
            reset_peak(&pid.to_string());
            (pid, status(&pid.to_string(), "VmRSS:"))
        });
        Self { at: Instant::now(), before: status("self", "VmRSS:"), driver }
    }

    pub fn end(self) -> Measurement {
        let time = self.at.elapsed();
        let own = status("self", "VmHWM:").saturating_sub(self.before);
        let driver =
            self.driver.map_or(0, |(pid, before)| status(&pid.to_string(), "VmHWM:").saturating_sub(before));
        Measurement { time, bytes: own + driver }
    }
}

/// Lets the peak of resident memory begin at the current value. Without this, the peak includes what was used to make the
/// input, which only makes the measurement worse.
fn reset_peak(process: &str) {
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
}

/// Returns a field of the status of a process in bytes, and 0 if it is unknown.
fn status(process: &str, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or_default() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_memory_is_measured() {
        let started = Started::now(None);
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let measured = started.end();
        assert!(measured.bytes >= 60 << 20, "{measured:?}");
    }
}
