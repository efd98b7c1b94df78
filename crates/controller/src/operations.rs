//! Runs operations: one at a time per release, started when the schedule has a slot.

mod drain;
mod memory;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::{
    digest::InputDigest,
    identity::ClusterKey,
    release::{Operation, OperationPhase, Progress},
    schedule::{Limits, Schedule},
};
use chandler_tool::StepReport;
use futures::{FutureExt as _, future::BoxFuture};
use tokio_util::sync::CancellationToken;

pub use self::{drain::drain_on_stop, memory::follow_memory};
use crate::{
    locks::{Mutex, MutexGuard},
    metrics::{Metrics, Quota},
};

/// Steps of an operation that is younger than this are not reported, because it may end soon.
const REPORT_STEPS_AFTER: Duration = Duration::from_secs(2);

/// The step of an operation that has no slot.
const QUEUED: &str = "waiting until fewer operations are running";

/// Returns the step of an operation that has no slot because of `--concurrency-per-namespace`.
fn at_namespace_limit(namespace: &str) -> String {
    format!(
        "waiting until fewer operations of namespace {namespace} are running: it has as many as \
         --concurrency-per-namespace of the manager allows"
    )
}

/// The uid of the release object.
pub type OperationId = String;

type Job<O> = Box<dyn FnOnce(Handle<O>) -> BoxFuture<'static, O> + Send>;
type Notify = Arc<dyn Fn() + Send + Sync>;

/// A queued or running operation of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub operation: Operation<InputDigest>,
    pub progress: Progress,
    pub phase: OperationPhase,
    /// Whether the operation takes long enough to report its progress.
    pub reportable: bool,
}

struct Entry {
    running: Running,
    /// The namespace of the cluster.
    namespace: String,
    started: Instant,
    cancel: CancellationToken,
    notify: Notify,
    /// Whether the release object has been deleted, so that the outcome is dropped.
    forgotten: bool,
}

impl Entry {
    fn is_reportable(&self) -> bool {
        match self.running.phase {
            OperationPhase::Queued => false,
            OperationPhase::Running => self.started.elapsed() >= REPORT_STEPS_AFTER,
            OperationPhase::Waiting => true,
        }
    }
}

struct Table<O> {
    schedule: Schedule<OperationId>,
    jobs: HashMap<OperationId, Job<O>>,
    entries: HashMap<OperationId, Entry>,
    outcomes: HashMap<OperationId, NumberedOutcome<O>>,
    /// Whether no operation is started any more.
    closed: bool,
    /// Number of operations that have ended.
    finished: u64,
}

/// The outcome of an operation, with the number of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedOutcome<O> {
    pub number: u64,
    pub outcome: O,
    /// Whether it was returned before.
    pub is_repeated: bool,
}

impl<O> Table<O> {
    fn withdraw(&mut self, id: &OperationId) {
        if self.jobs.remove(id).is_some() {
            self.entries.remove(id);
            self.schedule.release(id);
        }
    }
}

/// How an operation has ended.
pub trait OperationOutcome: Send + 'static {
    /// Whether the cluster has not answered. An operation that only waits has no slot; its end says nothing about this.
    fn is_unanswered(&self) -> bool;
}

/// All operations, with outcomes of type `O`. Clones share the table.
pub struct Operations<O> {
    table: Arc<Mutex<Table<O>>>,
    /// Notified when an operation has ended or its outcome was acknowledged.
    changed: Arc<tokio::sync::Notify>,
    metrics: Metrics,
}

impl<O> Clone for Operations<O> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), changed: self.changed.clone(), metrics: self.metrics.clone() }
    }
}

/// The interface for a running operation.
pub struct Handle<O> {
    operations: Operations<O>,
    id: OperationId,
    pub cancel: CancellationToken,
}

impl<O: OperationOutcome> Operations<O> {
    pub fn new(limits: Limits, metrics: Metrics) -> Self {
        let table = Table {
            schedule: Schedule::new(limits),
            jobs: HashMap::new(),
            entries: HashMap::new(),
            outcomes: HashMap::new(),
            closed: false,
            finished: 0,
        };
        Self { table: Arc::new(Mutex::new(table)), changed: Arc::default(), metrics }
    }

    /// Returns the queued or running operation of a release.
    pub fn running(&self, id: &OperationId) -> Option<Running> {
        let table = self.lock();
        let entry = table.entries.get(id)?;
        let mut running = Running { reportable: entry.is_reportable(), ..entry.running.clone() };
        if running.phase == OperationPhase::Queued && table.schedule.is_at_namespace_limit(&entry.namespace) {
            running.progress.step = at_namespace_limit(&entry.namespace);
        }
        Some(running)
    }

    /// Returns the outcome of the last operation, until it is acknowledged. From the second time on, it is marked as repeated.
    pub fn deliver_outcome(&self, id: &OperationId) -> Option<NumberedOutcome<O>>
    where
        O: Clone,
    {
        let mut table = self.lock();
        let ended = table.outcomes.get_mut(id)?;
        let returned = ended.clone();
        ended.is_repeated = true;
        Some(returned)
    }

    /// Drops an outcome that has been written to the status, or whose object is about to be gone. The outcome of a later operation is kept.
    pub fn acknowledge(&self, id: &OperationId, number: u64) {
        let mut table = self.lock();
        if table.outcomes.get(id).is_some_and(|ended| ended.number == number) {
            table.outcomes.remove(id);
        }
        drop(table);
        self.changed.notify_waiters();
    }

    /// Queues an operation, unless the release has one already or operations are closed. `notify` is called when it makes progress or ends.
    pub fn start(
        &self,
        id: OperationId,
        cluster: ClusterKey,
        operation: Operation<InputDigest>,
        waits: bool,
        notify: impl Fn() + Send + Sync + 'static,
        job: impl FnOnce(Handle<O>) -> BoxFuture<'static, O> + Send + 'static,
    ) {
        let mut table = self.lock();
        if table.closed || table.entries.contains_key(&id) {
            return;
        }
        let running = Running {
            operation,
            progress: Progress { step: QUEUED.to_owned() },
            phase: OperationPhase::Queued,
            reportable: false,
        };
        let entry = Entry {
            running,
            namespace: cluster.namespace.clone(),
            started: Instant::now(),
            cancel: CancellationToken::new(),
            notify: Arc::new(notify),
            forgotten: false,
        };
        if table.schedule.is_at_namespace_limit(&cluster.namespace) {
            self.metrics.quota_reached(Quota::Operations);
        }
        table.entries.insert(id.clone(), entry);
        table.jobs.insert(id.clone(), Box::new(job));
        table.schedule.submit(id, cluster, waits);
        drop(table);
        self.start_due();
    }

    /// Removes an operation that waits for a slot. Does nothing if it has started.
    pub fn withdraw(&self, id: &OperationId) {
        let mut table = self.lock();
        table.withdraw(id);
        self.metrics.slots(table.schedule.queued(), table.schedule.active());
    }

    /// Cancels the operation of a deleted object and drops its outcome.
    pub fn forget(&self, id: &OperationId) {
        let mut table = self.lock();
        table.outcomes.remove(id);
        table.withdraw(id);
        if let Some(entry) = table.entries.get_mut(id) {
            entry.forgotten = true;
            entry.cancel.cancel();
        }
        drop(table);
        self.changed.notify_waiters();
    }

    /// Cancels an operation. Its outcome is available when it has ended.
    pub fn cancel(&self, id: &OperationId) {
        if let Some(entry) = self.lock().entries.get(id) {
            entry.cancel.cancel();
        }
    }

    /// Withdraws all queued operations and starts no more. Running operations go on.
    pub fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        let queued: Vec<_> = table.jobs.keys().cloned().collect();
        for id in &queued {
            table.withdraw(id);
        }
    }

    /// Sets the namespaces whose operations that wait occupy as much memory as they may: see [`Schedule::set_low_on_memory`].
    pub fn set_low_on_memory(&self, namespaces: &BTreeSet<String>) {
        if !self.lock().schedule.set_low_on_memory(namespaces.clone()) {
            return;
        }
        if namespaces.is_empty() {
            tracing::info!("memory is no longer low: operations with `wait` start again");
        } else {
            tracing::warn!(
                ?namespaces,
                "memory is low: operations with `wait` start only on clusters on which others wait"
            );
        }
        self.start_due();
    }

    /// Forgets what is known about a cluster that is gone.
    pub fn forget_cluster(&self, cluster: &ClusterKey) {
        self.lock().schedule.forget(cluster);
    }

    /// Cancels all operations.
    pub fn cancel_all(&self) {
        self.lock().entries.values().for_each(|entry| entry.cancel.cancel());
    }

    /// Waits until no operation is running.
    pub async fn wait_idle(&self) {
        self.wait(|table| table.entries.is_empty()).await;
    }

    /// Waits until all outcomes have been acknowledged.
    pub async fn wait_acknowledged(&self) {
        self.wait(|table| table.outcomes.is_empty()).await;
    }

    async fn wait(&self, is_done: impl Fn(&Table<O>) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn start_due(&self) {
        loop {
            let mut table = self.lock();
            let next = table.schedule.start_next();
            self.metrics.slots(table.schedule.queued(), table.schedule.active());
            let Some(id) = next else { return };
            let (Some(job), Some(entry)) = (table.jobs.remove(&id), table.entries.get_mut(&id)) else {
                continue;
            };
            self.metrics.slot(entry.running.operation.kind().as_str(), entry.started.elapsed().as_secs_f64());
            entry.started = Instant::now();
            entry.running.phase = OperationPhase::Running;
            entry.running.progress = Progress::default();
            let handle = Handle { operations: self.clone(), id: id.clone(), cancel: entry.cancel.clone() };
            drop(table);
            let operations = self.clone();
            tokio::spawn(async move {
                let outcome = job(handle).await;
                operations.finish(id, outcome);
            });
        }
    }

    fn finish(&self, id: OperationId, outcome: O) {
        let mut table = self.lock();
        if outcome.is_unanswered() {
            table.schedule.answered(&id, false);
        }
        table.schedule.release(&id);
        let entry = table.entries.remove(&id).filter(|entry| !entry.forgotten);
        if entry.is_some() {
            table.finished += 1;
            let number = table.finished;
            table.outcomes.insert(id, NumberedOutcome { number, outcome, is_repeated: false });
        }
        drop(table);
        self.start_due();
        if let Some(entry) = entry {
            (entry.notify)();
        }
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Table<O>> {
        self.table.lock()
    }
}

/// An operation that waits for a process. It has a slot again when this is dropped.
struct Suspended<'a, O: OperationOutcome>(&'a Handle<O>);

impl<O: OperationOutcome> Drop for Suspended<'_, O> {
    fn drop(&mut self) {
        self.0.operations.lock().schedule.resume(&self.0.id);
        self.0.operations.start_due();
    }
}

impl<O: OperationOutcome> Handle<O> {
    /// Waits for a process. The operation occupies no slot meanwhile.
    pub async fn without_slot<F: Future>(&self, process: F) -> F::Output {
        let mut process = std::pin::pin!(process);
        if let Some(process) = process.as_mut().now_or_never() {
            return process;
        }
        self.operations.lock().schedule.suspend(&self.id);
        let _suspended = Suspended(self);
        self.operations.start_due();
        process.await
    }

    /// Records a step, and frees the slot of an operation that only waits from now on.
    pub fn step(&self, step: StepReport) {
        let mut table = self.operations.lock();
        // The first step follows the first response of the cluster.
        let has_new_slots = table.schedule.answered(&self.id, true);
        if step.waiting {
            table.schedule.wait(&self.id);
        }
        let notify = table.entries.get_mut(&self.id).and_then(|entry| {
            entry.running.progress.step = step.message;
            entry.running.phase =
                if step.waiting { OperationPhase::Waiting } else { OperationPhase::Running };
            entry.is_reportable().then(|| entry.notify.clone())
        });
        drop(table);
        if step.waiting || has_new_slots {
            self.operations.start_due();
        }
        if let Some(notify) = notify {
            notify();
        }
    }
}
