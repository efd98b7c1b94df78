//! The clock of the leader election.
//!
//! `CLOCK_BOOTTIME`, because it counts whatever happens to this process: `std::time::Instant` is `CLOCK_MONOTONIC`, which
//! continues while the process is stopped but not while the machine is suspended, and the wall clock may be set. The
//! package tools of this manager read the same clock.

use std::time::Duration;

use chandler_core::leadership::BootTime;
use rustix::time::{ClockId, clock_gettime};

/// The timers of tokio do not count while the machine is suspended, so the clock is read at least this often.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

pub fn now() -> BootTime {
    // The kernel never returns a negative time since boot.
    BootTime::new(Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default())
}

/// Waits until this point in time. Returns at most [`CHECK_PERIOD`] late after the machine was suspended.
pub async fn sleep_until(end: BootTime) {
    loop {
        let left = end.saturating_since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(CHECK_PERIOD)).await;
    }
}
