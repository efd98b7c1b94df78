//! Limits the memory of operations that wait.

use std::{collections::BTreeSet, time::Duration};

use super::{OperationOutcome, Operations};

/// How often memory is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Lets operations of a namespace wait on further clusters only while its memory is not low. Runs until the future is dropped.
pub async fn follow_memory<O: OperationOutcome>(
    operations: Operations<O>,
    low: impl Fn() -> BTreeSet<String>,
) {
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        checks.tick().await;
        operations.set_low_on_memory(&low());
    }
}
