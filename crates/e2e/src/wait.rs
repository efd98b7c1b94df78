//! Polls for effects that clusters and managers produce asynchronously.

use std::time::{Duration, Instant};

/// Longer than any expected wait, to leave room for a busy machine.
pub const LIMIT: Duration = Duration::from_mins(2);
/// The shortest and the longest time between two checks.
const PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];

/// Polls until `check` returns true.
pub async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !check().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        pause(start).await;
    }
}

/// Polls until `check` returns a value.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, check: impl FnMut() -> F) -> T {
    eventually_within(LIMIT, what, check).await
}

/// Like [`eventually`], with a custom limit.
pub async fn eventually_within<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    mut check: impl FnMut() -> F,
) -> T {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(value) = check().await {
            return value;
        }
        pause(start).await;
    }
    panic!("not within {limit:?}: {what}");
}

/// Waits for a tenth of the time since `start`: checks take CPU time, of which the tests need all.
pub async fn pause(start: Instant) {
    let [shortest, longest] = PAUSE;
    tokio::time::sleep((start.elapsed() / 10).clamp(shortest, longest)).await;
}
