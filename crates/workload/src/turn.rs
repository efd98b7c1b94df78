//! Turns: few clusters connect at the same time, and one that takes long does not keep others waiting.

use std::{pin::pin, time::Duration};

/// What takes longer no longer keeps others waiting.
pub const TURN: Duration = Duration::from_secs(5);

/// Runs `work`, and drops `permits` when it ends or after [`TURN`].
pub async fn in_turn<T>(permits: impl Sized, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(TURN, &mut work).await {
        return done;
    }
    drop(permits);
    work.await
}
