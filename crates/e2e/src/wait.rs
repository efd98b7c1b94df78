//! Waits for what clusters and managers do in their own time.

use std::time::Duration;

/// Nothing takes so long; a busy machine may.
pub const LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(100);

/// Polls until `look` returns true.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !look().await {
        assert!(std::time::Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Polls until `look` returns a value.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) -> T {
    eventually_within(LIMIT, what, look).await
}

/// As [`eventually`], with a limit of its own.
pub async fn eventually_within<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = std::time::Instant::now() + limit;
    while std::time::Instant::now() < deadline {
        if let Some(seen) = look().await {
            return seen;
        }
        tokio::time::sleep(POLL).await;
    }
    panic!("not within {limit:?}: {what}");
}
