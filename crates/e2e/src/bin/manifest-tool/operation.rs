//! Runs an operation: steps, then one result.

use std::time::Duration;

use chandler_tool::generated::tool::{
    OperationEvent, OperationResult, ReleaseAbsent, ReleaseState, Step, StepKind, operation_event::Event,
    operation_result::Outcome,
};
use serde_json::json;
use tokio::sync::mpsc;
use tonic::Status;

use crate::{
    failure::{Category, Failure},
    log,
    running::Operation,
};

/// How long a sent request may take to arrive at the API server.
const ARRIVAL: Duration = Duration::from_secs(1);

pub type Sender = mpsc::Sender<Result<OperationEvent, Status>>;

/// Sends the steps of an operation to the caller.
#[derive(Clone, Debug)]
pub struct Steps(pub Sender);

impl Steps {
    pub async fn send(&self, kind: StepKind, message: &str) {
        let step = Step { kind: kind.into(), message: message.to_owned(), objects: Vec::new() };
        // A caller that has closed the stream cancels the operation.
        let _ = self.0.send(Ok(event(Event::Step(step)))).await;
    }
}

/// Returns the result of an operation. `None` means that the release does not exist.
pub fn result(state: Option<ReleaseState>, unchanged: bool) -> OperationResult {
    let outcome = state.map_or(Outcome::Absent(ReleaseAbsent {}), Outcome::State);
    OperationResult { outcome: Some(outcome), unchanged, ignored_fields: Vec::new() }
}

fn event(event: Event) -> OperationEvent {
    OperationEvent { event: Some(event) }
}

/// Runs an operation until it ends, is cancelled, the caller closes the stream, or the Lease expires. Sends no request
/// after the result.
pub async fn run(
    operation: Operation,
    events: Sender,
    work: impl Future<Output = Result<OperationResult, Failure>>,
) {
    tokio::pin!(work);
    let result = tokio::select! {
        result = &mut work => result,
        () = operation.cancelled() => Err(cancelled()),
        () = events.closed() => Err(cancelled()),
        () = operation.lease_expired() => Err(lease_expired()),
    };
    operation.gate.close();
    if result.as_ref().is_err_and(|failure| failure.category == Category::Cancelled) {
        // A request that has been sent arrives before the operation ends. No other one can be sent.
        let _ = tokio::time::timeout(ARRIVAL, work).await;
    }
    let last = match result {
        Ok(result) => Event::Result(result),
        Err(failure) => {
            let failure = failure.into_message();
            log("warn", json!({"msg": "operation failed", "category": failure.category().as_str_name()}));
            Event::Failure(failure)
        }
    };
    let _ = events.send(Ok(event(last))).await;
}

fn cancelled() -> Failure {
    Failure::new(Category::Cancelled, "the operation was cancelled")
}

/// The failure of a call after the Lease has expired.
pub fn lease_expired() -> Failure {
    Failure::new(Category::Cancelled, "this manager no longer holds the Lease")
}
