//! Ticks, which are common to the connections to all clusters: see [`next_tick`].

use std::{
    pin::Pin,
    sync::LazyLock,
    time::{Duration, Instant as StdInstant},
};

use chandler_core::reachability::next_tick;
use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;
use tokio::time::Instant;

/// Ticks count from here.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns how much time lies between the start and `time`, or zero if it is earlier.
pub fn since_start(time: Instant) -> Duration {
    time.saturating_duration_since(*START)
}

/// Returns the time that is so long after the start.
pub fn after_start(duration: Duration) -> Instant {
    *START + duration
}

/// A timer of connections that expires at ticks.
#[derive(Clone, Debug, Default)]
pub struct TickTimer(TokioTimer);

impl Timer for TickTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn Sleep>> {
        self.0.sleep_until(at_tick(deadline))
    }

    fn now(&self) -> StdInstant {
        self.0.now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: StdInstant) {
        self.0.reset(sleep, at_tick(new_deadline));
    }
}

fn at_tick(deadline: StdInstant) -> StdInstant {
    after_start(next_tick(since_start(deadline.into()))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timers_that_are_set_at_different_times_expire_together() {
        let timer = TickTimer::default();
        // Between two ticks, whenever the clock of other tests has started.
        let between = next_tick(since_start(Instant::now())) + Duration::from_millis(100);
        tokio::time::sleep_until(after_start(between)).await;
        let interval = Duration::from_secs(30);
        let first = timer.sleep(interval);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut second = timer.sleep(Duration::from_mins(5));
        timer.reset(&mut second, timer.now() + interval);
        let mut ends = Vec::new();
        for sleep in [first, second] {
            sleep.await;
            ends.push(Instant::now());
        }
        assert_eq!(ends[0], ends[1]);
        // There is a tick every second.
        assert!(since_start(ends[0]).subsec_millis() < 10, "{:?}", since_start(ends[0]));
    }
}
