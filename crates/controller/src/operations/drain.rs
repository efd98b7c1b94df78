//! Ends the operations of a manager that stops.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{OperationOutcome, Operations};

/// How long operations may take to end after they were canceled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the status writes of the last operations may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits until the manager is stopped, then starts no more operations and waits until those that are running have ended: by
/// themselves, or because they are canceled after the timeout. Reconcilers go on meanwhile, so that the status shows how
/// each has ended.
pub async fn drain_on_stop<O: OperationOutcome>(
    stop: &CancellationToken,
    operations: &Operations<O>,
    timeout: Duration,
) {
    stop.cancelled().await;
    tracing::info!("stopping");
    operations.close();
    if tokio::time::timeout(timeout, operations.wait_idle()).await.is_err() {
        tracing::warn!("operations are still running: canceling them");
        operations.cancel_all();
        if tokio::time::timeout(CANCEL_TIMEOUT, operations.wait_idle()).await.is_err() {
            tracing::error!("operations do not end; the next leader recovers their releases");
        }
    }
    if tokio::time::timeout(REPORT_TIMEOUT, operations.wait_acknowledged()).await.is_err() {
        tracing::warn!("not every status shows how its last operation has ended");
    }
}
