//! Polls for effects that clusters and managers produce asynchronously.

use std::time::Duration;

/// Longer than any expected wait, to leave room for a busy machine.
pub const LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(100);

/// Polls until `check` returns true.
pub async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !check().await {
        assert!(std::time::Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(POLL).await;
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
    let deadline = std::time::Instant::now() + limit;
    while std::time::Instant::now() < deadline {
        if let Some(value) = check().await {
            return value;
        }
        tokio::time::sleep(POLL).await;
    }
    panic!("not within {limit:?}: {what}");
}
