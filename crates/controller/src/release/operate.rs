//! Runs one operation with the package tool, off the reconciler's own path.

mod compare_and_test;
mod outcome;

use std::{sync::Arc, time::Instant};

use chandler_api::extensions::OnFailure;
use chandler_core::{
    digest::InputDigest,
    failure::{Category, Failure},
    identity::{ClusterKey, ReleaseId},
    release::{ApplyKind, Desired, Operation, OperationKind, ReleaseKind, failure_key},
    target::Target,
    tenancy::{Boundary, ReleaseUse},
};
use chandler_source::StoredPackage;
use chandler_telemetry::trace::{self, Span};
use chandler_tool::{
    Applied, ApplyOrder, OperationFailure, PackageTool, ProcessGuard, RemoveOrder, RollbackOrder,
};
use chandler_workload::Connection;
use futures::FutureExt as _;
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

pub use self::{
    compare_and_test::Comparison,
    outcome::{Done, Outcome},
};
use super::{
    PlacementState, ReleaseContext,
    boundary::check_capabilities,
    inputs::{self, Inputs},
};
use crate::{metrics::Quota, operations::Handle, status};

/// An operation to start.
pub(super) struct Start {
    pub operation: Operation<Inputs>,
    /// The key under which a failure is recorded: see [`failure_key`](chandler_core::release::failure_key).
    pub key: String,
    /// What a rollback restores.
    pub restored: Option<Restored>,
    /// When the failure happened that the operation is the remediation of.
    pub failed_at: Option<Timestamp>,
    /// Whether a user has asked for it, instead of the policy.
    pub requested: bool,
    /// What is compared.
    pub comparison: Option<Comparison>,
    /// The inputs of the newest revision, which a removal removes.
    pub installed: Option<InputDigest>,
    /// Whether a removal of the newest revision was interrupted, which is finished first.
    pub uninstalling: bool,
    /// The revision that is tested.
    pub revision: Option<u32>,
    /// Whether the log of a failed test is read.
    pub logs: bool,
}

/// The revision that a rollback restores.
pub(super) struct Restored {
    pub revision: u32,
    pub inputs: InputDigest,
}

/// What is applied.
struct Prepared {
    values: String,
    /// It is kept until the operation has ended, so that the store does not delete it.
    package: StoredPackage,
}

/// What an operation runs with.
struct Run<'a> {
    operation_id: String,
    process: ProcessGuard,
    handle: &'a Handle<Outcome>,
    /// What it may do on the cluster.
    boundary: Boundary,
}

/// The parts of an operation, collected before it is queued. The values are not among them: they may be large, and there may
/// be thousands of queued operations. They are read when it starts.
struct Work<R: ReleaseKind> {
    context: Arc<ReleaseContext<R>>,
    start: Start,
    id: String,
    /// Generation of the spec that requests it.
    generation: Option<i64>,
    object: ObjectRef<R>,
    cluster: ClusterKey,
    release: ReleaseId,
    /// The repository of the package, which may be that of a catalog.
    repository: String,
    tool: PackageTool,
    connection: Arc<Connection>,
}

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Queues an operation. Its end enqueues the object.
    pub(super) fn operate(
        self: &Arc<Self>,
        object: &R,
        start: Start,
        desired: &Desired,
        tool: PackageTool,
        connection: Arc<Connection>,
    ) {
        let id = object.uid().unwrap_or_default();
        let started = start.operation.borrowed().map(|inputs| inputs.digest.clone());
        let work = Work {
            context: self.clone(),
            start,
            id: id.clone(),
            generation: object.meta().generation,
            object: ObjectRef::from_obj(object),
            cluster: desired.cluster.clone(),
            release: desired.release.clone(),
            repository: desired.package.repository.clone(),
            tool,
            connection,
        };
        let is_removal = matches!(started.kind(), OperationKind::Remove | OperationKind::UninstallFailed);
        let waits = match started.kind() {
            OperationKind::Compare => false,
            OperationKind::Test => true,
            _ => desired.execution.wait && !is_removal,
        };
        let (queue, reference) = (self.queue.clone(), ObjectRef::from_obj(object));
        let span = Span::new("operation").map(|span| {
            span.with("chandler.operation", started.kind().as_str())
                .with("chandler.cluster", desired.cluster.to_string())
                .with("chandler.release", desired.release.to_string())
                .child_of(trace::current())
        });
        self.caches.operations.start(
            id,
            desired.cluster.clone(),
            started,
            waits,
            move || queue.enqueue(reference.clone()),
            move |handle| trace::in_span(span, work.run(handle)).boxed(),
        );
    }
}

impl<R: ReleaseKind> Work<R> {
    async fn run(self, handle: Handle<Outcome>) -> Outcome {
        let started = Instant::now();
        let (cluster, release, kind) = (&self.cluster, &self.release, self.start.operation.kind());
        let desired = if handle.cancel.is_cancelled() { None } else { self.still_desired() };
        let Some(desired) = desired else {
            tracing::debug!(%cluster, %release, kind = kind.as_str(), "operation is not started: it is outdated");
            return self.outcome(self.start.key.clone(), true, Err(not_begun().into()));
        };
        // Comparisons are frequent, and most of them find nothing.
        if kind == OperationKind::Compare {
            tracing::debug!(%cluster, %release, kind = kind.as_str(), "operation starts");
        } else {
            tracing::info!(%cluster, %release, kind = kind.as_str(), "operation starts");
        }
        let (key, result) = match self.prepare(&desired, &handle).await {
            Ok(prepared) => {
                drop(desired);
                match Box::pin(self.begin(&handle)).await {
                    Ok((desired, run)) => {
                        (self.start.key.clone(), Box::pin(self.act(prepared, desired, run)).await)
                    }
                    Err((key, failure)) => (key, Err(failure.into())),
                }
            }
            // It says nothing about the release, so it is no attempt at applying the inputs.
            Err(failure) => (failure_key::resolve(self.generation), Err(failure.into())),
        };
        let outcome = match &result {
            Ok(done) => done.outcome(),
            Err(error) => error.failure.category.as_str(),
        };
        if result.is_err() {
            trace::record_failure(outcome);
        }
        let seconds = started.elapsed().as_secs_f64();
        if !matches!(result, Ok(Done::Unchanged(_))) {
            self.context.metrics.operation(kind.as_str(), outcome, seconds);
        }
        if kind == OperationKind::Compare && outcome == "success" {
            tracing::debug!(%cluster, %release, kind = kind.as_str(), outcome, seconds, "operation ended");
        } else {
            tracing::info!(%cluster, %release, kind = kind.as_str(), outcome, seconds, "operation ended");
        }
        let canceled = result.as_ref().is_err_and(|error| {
            let is_canceled = handle.cancel.is_cancelled() && error.failure.category == Category::Cancelled;
            is_canceled || error.failure == not_begun()
        });
        self.outcome(key, canceled, result)
    }

    fn outcome(&self, key: String, canceled: bool, result: Result<Done, OperationFailure>) -> Outcome {
        let Start { operation, comparison, .. } = &self.start;
        let scope = comparison.as_ref().map(|comparison| comparison.snapshot.scope.clone());
        Outcome { key, tool: self.tool.id(), canceled, kind: operation.kind(), scope, result }
    }

    /// Decides whether the operation still has to run: when a slot is free, and again when it has a process, both of which may be
    /// long after the plan was made. Returns the desired release if so. An object that does not reflect the spec of its placement
    /// yet is about to change.
    fn still_desired(&self) -> Option<Desired> {
        let object = self.context.releases.by_reference(&self.object)?;
        let is_removal = matches!(self.start.operation, Operation::Remove);
        let is_unchanged = object.uid().as_ref() == Some(&self.id)
            && object.meta().deletion_timestamp.is_some() == is_removal
            && (is_removal || object.meta().generation == self.generation);
        let is_paused = status::is_paused(&*object) || self.context.clusters.facts(&self.cluster).paused;
        let placement = (self.context.placement_state)(&object);
        let remediation = match self.start.operation {
            Operation::Rollback { .. } => Some(OnFailure::Rollback),
            Operation::UninstallFailed => Some(OnFailure::Uninstall),
            Operation::Apply { .. } | Operation::Remove | Operation::Compare | Operation::Test { .. } => None,
        };
        let is_remediated = remediation.is_none_or(|on_failure| {
            if self.start.requested {
                return self.is_still_requested(&object, &placement);
            }
            placement.remediates(&*object, on_failure, self.start.failed_at, Timestamp::now())
        });
        if !is_unchanged || is_paused || !placement.allows(&*object) || !is_remediated {
            return None;
        }
        // The reconcile that follows reports a spec that is not valid.
        let mut desired = placement.apply_to(object.desired().ok()?);
        desired.package.repository.clone_from(&self.repository);
        self.is_still_wanted(&placement, &desired).then_some(desired)
    }

    /// Reduces a timeout that is longer than the manager allows. It is no input of the release, so this adds no revision.
    fn reduce_timeout(&self, desired: &mut Desired) {
        let max = self.context.max_timeout;
        let Some(requested) = desired.execution.reduce_timeout(max) else { return };
        // A comparison has a timeout of its own.
        if matches!(self.start.operation, Operation::Compare) {
            return;
        }
        self.context.metrics.quota_reached(Quota::Timeout);
        let note = format!(
            "the operation may take {} s instead of {} s as in spec.options.timeout: the manager allows no longer timeout \
             (--max-timeout-seconds)",
            max.as_secs(),
            requested.as_secs()
        );
        self.warn("TimeoutReduced", &note);
    }

    /// Publishes an Event of the release object about how the operation runs.
    fn warn(&self, reason: &str, note: &str) {
        if let Some(object) = self.context.releases.by_reference(&self.object) {
            self.context.events.warning(&*object, reason, note);
        }
    }

    /// Returns whether a user still wants to restore the revision.
    fn is_still_requested(&self, object: &R, placement: &PlacementState) -> bool {
        let Operation::Rollback { inputs } = &self.start.operation else { return false };
        let restored = self.start.restored.as_ref().map(|restored| restored.revision);
        let requested = placement.requested_rollback(object, &inputs.digest);
        restored.is_some() && requested.map(|requested| requested.revision) == restored
    }

    /// Reads what is applied. Returns `None` if the operation applies nothing.
    async fn prepare(
        &self,
        desired: &Desired,
        handle: &Handle<Outcome>,
    ) -> Result<Option<Prepared>, Failure> {
        let Operation::Apply { inputs, .. } = &self.start.operation else { return Ok(None) };
        let prepared = handle.cancel.run_until_cancelled(async {
            let values = self.context.values_text(desired).await?;
            let package = self.context.stored_package(desired, &inputs.package).await?;
            Ok::<_, Failure>(Some(Prepared { values, package }))
        });
        prepared.await.ok_or_else(not_begun)?
    }

    /// Acquires a process, and decides what the operation may do. Returns the key of a failure with it: what AddonTenancies do
    /// not allow, or what is not known about them, is no attempt at applying the inputs.
    async fn begin<'h>(&self, handle: &'h Handle<Outcome>) -> Result<(Desired, Run<'h>), (String, Failure)> {
        let own_key = || self.start.key.clone();
        let process = Box::pin(handle.without_slot(self.tool.process(&self.id, &handle.cancel))).await;
        let process = process.map_err(|failure| (own_key(), failure))?;
        // The process may have been acquired long after the slot.
        let mut desired = self.still_desired().ok_or_else(|| (own_key(), not_begun()))?;
        self.reduce_timeout(&mut desired);
        let refused = |failure: Failure| {
            let is_attempt = matches!(self.start.operation, Operation::Apply { .. } | Operation::Test { .. });
            let key = if is_attempt { failure_key::resolve(self.generation) } else { own_key() };
            (key, failure)
        };
        let boundary = self.boundary(&desired).await.map_err(refused)?;
        self.limit_atomic(&mut desired, &boundary).await.map_err(refused)?;
        let operation_id = format!("{}-{}", self.id, Timestamp::now().as_nanosecond());
        Ok((desired, Run { operation_id, process, handle, boundary }))
    }

    async fn act(
        &self,
        prepared: Option<Prepared>,
        desired: Desired,
        run: Run<'_>,
    ) -> Result<Done, OperationFailure> {
        match &self.start.operation {
            Operation::Apply { kind, inputs } => {
                let prepared = prepared.ok_or_else(not_begun)?;
                let applied = self.apply(run, desired, prepared, *kind, inputs).await?;
                Ok(if applied.unchanged {
                    Done::Unchanged(applied.details)
                } else {
                    Done::Applied(*kind, applied)
                })
            }
            Operation::Remove => {
                self.remove(run, desired).await?;
                Ok(Done::Removed)
            }
            Operation::UninstallFailed => {
                self.remove(run, desired).await?;
                Ok(Done::Uninstalled)
            }
            Operation::Rollback { inputs } => {
                let applied = self.roll_back(run, desired, inputs).await?;
                Ok(Done::RolledBack { applied, failed: inputs.digest.clone() })
            }
            Operation::Compare => {
                drop(desired);
                self.compare(run).await
            }
            Operation::Test { .. } => self.test(run, desired).await,
        }
    }

    /// Returns what the operation may do on the cluster, or why AddonTenancies do not allow it.
    async fn boundary(&self, desired: &Desired) -> Result<Boundary, Failure> {
        let installed = self.start.installed.as_ref();
        let release_use = match &self.start.operation {
            Operation::Apply { kind: ApplyKind::Recover, inputs } if self.start.uninstalling => {
                ReleaseUse::finishing_uninstall(&desired.recorded, installed, &inputs.digest)
            }
            Operation::Apply { .. } | Operation::Compare | Operation::Test { .. } => ReleaseUse::Desired,
            Operation::Rollback { .. } => ReleaseUse::Rollback,
            Operation::Remove | Operation::UninstallFailed => ReleaseUse::Removal { installed },
        };
        let boundary = self.context.boundary(desired, release_use).await?;
        check_capabilities(&self.tool, &boundary).await?;
        Ok(boundary)
    }

    /// Disables a rollback by the tool, which restores an earlier revision with the boundary of the new one. What the release of an
    /// Extension of the platform was before may have come from elsewhere.
    async fn limit_atomic(&self, desired: &mut Desired, boundary: &Boundary) -> Result<(), Failure> {
        let kind = self.start.operation.kind();
        let is_update = matches!(kind, OperationKind::Apply(ApplyKind::Upgrade | ApplyKind::Recover));
        if is_update && desired.execution.atomic && self.context.tenancies.exempt(desired, boundary).await? {
            desired.execution.atomic = false;
            self.warn(
                "AtomicIgnored",
                "the upgrade is not rolled back if it fails, although spec.options.atomic is set: the Extension of the platform is \
                 exempt from AddonTenancies and accounts, and the revision before it may not be",
            );
        }
        Ok(())
    }

    /// Returns how to reach the cluster, with the newest credentials. It is read last: a download may have taken longer than a
    /// token is valid.
    fn target(&self, boundary: &Boundary) -> Result<Target, Failure> {
        let target = self.connection.target().ok_or_else(|| {
            Failure::new(Category::Unreachable, format!("cluster {} is not connected", self.cluster))
        })?;
        Ok(Target { boundary: boundary.clone(), ..target })
    }

    async fn apply(
        &self,
        run: Run<'_>,
        desired: Desired,
        prepared: Prepared,
        kind: ApplyKind,
        inputs: &Inputs,
    ) -> Result<Applied, OperationFailure> {
        let Prepared { values, package } = prepared;
        let target = self.target(&run.boundary)?;
        self.context.metrics.tool_call("apply");
        let order = ApplyOrder {
            operation_id: run.operation_id,
            target,
            release: self.release.clone(),
            package: inputs::file(&package),
            values,
            kind,
            inputs: inputs.digest.clone(),
            rendering: desired.rendering.clone(),
            execution: desired.execution.clone(),
        };
        // The operation may wait long, and needs the values no more.
        drop(desired);
        run.process.apply(order, &run.handle.cancel, |step| run.handle.step(step)).await
    }

    async fn roll_back(
        &self,
        run: Run<'_>,
        desired: Desired,
        failed: &Inputs,
    ) -> Result<Applied, OperationFailure> {
        let Some(Restored { revision, inputs }) = &self.start.restored else {
            return Err(not_begun().into());
        };
        let target = self.target(&run.boundary)?;
        self.context.metrics.tool_call("rollback");
        let order = RollbackOrder {
            operation_id: run.operation_id,
            target,
            release: self.release.clone(),
            revision: *revision,
            inputs: inputs.clone(),
            rolled_back: failed.digest.clone(),
            roll_back_deployed: self.start.requested,
            rendering: desired.rendering.clone(),
            execution: desired.execution.clone(),
        };
        drop(desired);
        run.process.rollback(order, &run.handle.cancel, |step| run.handle.step(step)).await
    }

    async fn remove(&self, run: Run<'_>, desired: Desired) -> Result<(), OperationFailure> {
        let target = self.target(&run.boundary)?;
        self.context.metrics.tool_call("remove");
        let order = RemoveOrder {
            operation_id: run.operation_id,
            target,
            release: self.release.clone(),
            rendering: desired.rendering.clone(),
            execution: desired.execution.clone(),
        };
        drop(desired);
        run.process.remove(order, &run.handle.cancel, |step| run.handle.step(step)).await
    }
}

fn not_begun() -> Failure {
    Failure::new(Category::Cancelled, "the operation was canceled before it began")
}
