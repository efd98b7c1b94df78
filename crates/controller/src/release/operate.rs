//! Runs one operation with the package tool, off the reconciler's own path.

use std::{sync::Arc, time::Instant};

use chandler_core::{
    failure::{Category, Failure},
    release::{Desired, OperationKind, ReleaseFace, failure_key},
    target::Target,
};
use chandler_telemetry::trace::{self, Span};
use chandler_tool::{ApplyKind, ApplyOrder, OperationFailure, ReleaseDetails, RemoveOrder};
use futures::FutureExt as _;
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use super::{
    ReleaseContext,
    inputs::{self, Inputs},
};
use crate::operations::Handle;

/// How an operation ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub kind: OperationKind,
    /// What failed, if it did: see [`failure_key`].
    pub key: String,
    pub result: Result<Option<ReleaseDetails>, OperationFailure>,
}

/// Everything an operation needs, gathered before it is queued.
struct Work<R: ReleaseFace> {
    context: Arc<ReleaseContext<R>>,
    kind: OperationKind,
    id: String,
    /// Of the spec that asks for it.
    generation: Option<i64>,
    desired: Desired,
    target: Target,
    inputs: Option<Inputs>,
}

impl<R: ReleaseFace> ReleaseContext<R> {
    /// Queues an operation; its end asks for another look at the object.
    pub(super) fn operate(
        self: &Arc<Self>,
        object: &R,
        kind: OperationKind,
        desired: &Desired,
        target: Target,
        inputs: Option<Inputs>,
    ) {
        let id = object.uid().unwrap_or_default();
        let work = Work {
            context: self.clone(),
            kind,
            id: id.clone(),
            generation: object.meta().generation,
            desired: desired.clone(),
            target,
            inputs,
        };
        let (queue, reference) = (self.queue.clone(), ObjectRef::from_obj(object));
        let span = Span::new("operation").map(|span| {
            span.with("chandler.operation", kind.as_str())
                .with("chandler.cluster", desired.cluster.to_string())
                .with("chandler.release", desired.release.to_string())
                .below(trace::current())
        });
        let digest = work.inputs.as_ref().map(|inputs| inputs.digest.clone());
        self.operations.start(
            id,
            desired.cluster.clone(),
            kind,
            digest,
            move || queue.enqueue(reference.clone()),
            move |handle| trace::within(span, work.run(handle)).boxed(),
        );
    }
}

impl<R: ReleaseFace> Work<R> {
    async fn run(self, handle: Handle<Outcome>) -> Outcome {
        let started = Instant::now();
        let (cluster, release, kind) =
            (self.desired.cluster.clone(), self.desired.release.clone(), self.kind);
        tracing::info!(%cluster, %release, kind = kind.as_str(), "operation starts");
        let result = self.act(&handle).await;
        let outcome = match &result {
            Ok(_) => "success",
            Err(error) => error.failure.category.as_str(),
        };
        if result.is_err() {
            trace::failed(outcome);
        }
        let seconds = started.elapsed().as_secs_f64();
        self.context.metrics.operation(kind.as_str(), outcome, seconds);
        tracing::info!(%cluster, %release, kind = kind.as_str(), outcome, seconds, "operation ended");
        let key = self
            .inputs
            .map_or_else(failure_key::remove, |inputs| failure_key::apply(self.generation, &inputs.digest));
        Outcome { kind, key, result }
    }

    async fn act(&self, handle: &Handle<Outcome>) -> Result<Option<ReleaseDetails>, OperationFailure> {
        if handle.cancel.is_cancelled() {
            return Err(
                Failure::new(Category::Cancelled, "the operation was cancelled before it began").into()
            );
        }
        let operation_id = format!("{}-{}", self.id, jiff::Timestamp::now().as_nanosecond());
        let kind = match self.kind {
            OperationKind::Install => ApplyKind::Install,
            OperationKind::Upgrade => ApplyKind::Upgrade,
            OperationKind::Recover => ApplyKind::Recover,
            OperationKind::Remove => {
                self.context.metrics.tool_call("remove");
                let order = RemoveOrder {
                    operation_id,
                    target: self.target.clone(),
                    release: self.desired.release.clone(),
                    rendering: self.desired.rendering.clone(),
                    execution: self.desired.execution.clone(),
                };
                self.context.tool.remove(order, &handle.cancel, |step| handle.step(step)).await?;
                return Ok(None);
            }
        };
        let inputs = self.inputs.as_ref().ok_or_else(|| {
            Failure::new(Category::Internal, "an operation was planned before its inputs were known")
        })?;
        let values = self.context.values_text(&self.desired).await?;
        // Held until the operation has ended, so that nobody collects it meanwhile.
        let stored = self.context.stored_package(&self.desired, &inputs.package).await?;
        self.context.metrics.tool_call("apply");
        let order = ApplyOrder {
            operation_id,
            target: self.target.clone(),
            release: self.desired.release.clone(),
            package: inputs::file(&stored),
            values,
            kind,
            inputs: inputs.digest.clone(),
            rendering: self.desired.rendering.clone(),
            execution: self.desired.execution.clone(),
        };
        self.context.tool.apply(order, &handle.cancel, |step| handle.step(step)).await.map(Some)
    }
}
