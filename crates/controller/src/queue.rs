//! Queues of objects to reconcile, and the loop that reconciles them.

mod slow;
mod waiting;

use std::{
    convert::Infallible,
    fmt::Debug,
    future::ready,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::jitter::jitter;
use chandler_telemetry::trace::{self, Span};
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use kube::{
    Resource, ResourceExt as _,
    runtime::{
        controller::{self, Action, Config, applier},
        reflector::{ObjectRef, Store},
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

pub use self::slow::outside_of_limit;
use self::{
    slow::{Next, SlowExecutor, SlowReconciles},
    waiting::Waiting,
};
use crate::{
    ReconcileError,
    metrics::{Metrics, Quota},
};

/// The interval at which all objects are reconciled without an event, with a jitter of 10 %.
pub const RESYNC: Duration = Duration::from_mins(10);
/// Events of an object within this time cause one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// Number of concurrent reconciles of a kind. It protects the API server of the management cluster.
const CONCURRENT_RECONCILES: u16 = 32;
const RETRY: Duration = Duration::from_secs(10);
/// When a reconcile that was put off is due again.
const PUT_OFF: Duration = Duration::from_secs(5);

/// Namespace and name of an object.
type ObjectName = (Option<String>, String);

/// Enqueues objects of one kind.
#[derive(Debug)]
pub struct Trigger<K: Resource> {
    sender: mpsc::UnboundedSender<ObjectRef<K>>,
    waiting: Arc<Waiting>,
    slow: Arc<SlowReconciles>,
}

impl<K: Resource> Clone for Trigger<K> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), waiting: self.waiting.clone(), slow: self.slow.clone() }
    }
}

/// The enqueued objects of one kind.
#[derive(Debug)]
pub struct Queue<K: Resource> {
    receiver: mpsc::UnboundedReceiver<ObjectRef<K>>,
    /// Enqueues objects again. It is weak, so that the queue is closed with its triggers.
    sender: mpsc::WeakUnboundedSender<ObjectRef<K>>,
    waiting: Arc<Waiting>,
    slow: Arc<SlowReconciles>,
}

impl<K: Resource + 'static> Trigger<K> {
    pub fn new(kind: &'static str, metrics: &Metrics) -> (Self, Queue<K>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let waiting = Arc::new(Waiting::new(metrics.queue_depth(kind)));
        let (weak, slow) = (sender.downgrade(), Arc::new(SlowReconciles::default()));
        let queue = Queue { receiver, sender: weak, waiting: waiting.clone(), slow: slow.clone() };
        (Self { sender, waiting, slow }, queue)
    }

    pub fn enqueue(&self, object: ObjectRef<K>) {
        let key = (object.namespace.clone(), object.name.clone());
        self.slow.object_changed(&key);
        self.waiting.begin(key);
        // Fails only when the process ends.
        let _ = self.sender.send(object);
    }
}

#[cfg(test)]
impl<K: Resource> Queue<K> {
    /// Returns an enqueued object, or `None` if there is none.
    pub fn take_one(&mut self) -> Option<ObjectRef<K>> {
        self.receiver.try_recv().ok()
    }
}

/// Reconciles enqueued objects until the queue is closed, one reconcile at a time per object.
pub async fn run<K, C, F>(
    kind: &'static str,
    dynamic_type: K::DynamicType,
    store: Store<K>,
    queue: Queue<K>,
    metrics: Metrics,
    context: Arc<C>,
    reconcile: impl Fn(Arc<K>, Arc<C>) -> F,
) where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin,
    F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    C: Send + Sync + 'static,
{
    let Queue { receiver, sender, waiting, slow } = queue;
    let queue = UnboundedReceiverStream::new(receiver).map(Ok::<_, Infallible>);
    let (skipped, gone) = (waiting.clone(), slow.clone());
    let (executor, slow_reconciles) = SlowExecutor::new();
    let reconciles = applier(
        move |object: Arc<K>, context| {
            let key = (object.namespace(), object.name_any());
            match slow.next(&key) {
                Next::Reconcile => {}
                Next::PutOff => {
                    metrics.quota_reached(Quota::Reconciles);
                    return ready(Ok(Action::requeue(PUT_OFF))).boxed();
                }
                Next::Wait => return ready(Ok(Action::await_change())).boxed(),
                Next::Ended(result) => return ready(result).boxed(),
            }
            let waited = waiting.end(&key);
            metrics.reconcile_started(kind, waited.map(|waited| waited.as_secs_f64()));
            let span = Span::new("reconcile").map(|span| {
                span.with("chandler.kind", kind)
                    .with("k8s.namespace.name", object.namespace().unwrap_or_default())
                    .with("chandler.object", object.name_any())
            });
            let (sender, reference) =
                (sender.clone(), ObjectRef::from_obj_with(&*object, dynamic_type.clone()));
            let enqueue = move || {
                if let Some(sender) = sender.upgrade() {
                    // Fails only when the process ends.
                    let _ = sender.send(reference.clone());
                }
            };
            // Boxed, because it is large and the futures around it would each have a copy.
            let reconcile = reconcile(object, context).boxed();
            let (metrics, started) = (metrics.clone(), Instant::now());
            let reconciled = key.clone();
            let reconcile = async move {
                reconcile.await.inspect_err(|error| trace::record_failure(error.category().as_str()))
            };
            let reconcile = async move {
                let result = trace::in_span(span, reconcile).await;
                metrics.reconcile_ended(kind, started.elapsed().as_secs_f64());
                result.inspect_err(|error| report(kind, &reconciled, error, &metrics))
            };
            slow.clone().run(executor.clone(), key, reconcile, enqueue).boxed()
        },
        |_, _: &ReconcileError, _| Action::requeue(RETRY),
        context,
        store,
        queue,
        Config::default().debounce(DEBOUNCE).concurrency(CONCURRENT_RECONCILES),
    )
    .for_each(|ended| {
        // An object that was deleted while it was enqueued is not reconciled.
        if let Err(controller::Error::ObjectNotFound(object)) = ended {
            let key = (object.namespace, object.name);
            skipped.end(&key);
            gone.forget(&key);
        }
        ready(())
    });
    tokio::select! {
        () = reconciles => {}
        () = slow_reconciles => {}
    }
}

/// Logs and counts a failed reconcile.
fn report(kind: &'static str, (namespace, name): &ObjectName, error: &ReconcileError, metrics: &Metrics) {
    metrics.reconcile_failed(kind, error.category());
    let namespace = namespace.as_deref().unwrap_or_default();
    tracing::warn!(kind, namespace, name, category = %error.category(), "reconcile failed: {error}");
}

/// Requeues an object for the next resync.
pub fn resync(object: &impl kube::ResourceExt) -> Action {
    Action::requeue(until_resync(object))
}

/// Returns the time until the next resync of an object.
pub fn until_resync(object: &impl kube::ResourceExt) -> Duration {
    RESYNC.mul_f64(0.9 + 0.2 * jitter(&object.uid().unwrap_or_default()))
}

/// Returns how long to wait for a point in time, so that it has passed then.
pub fn until(time: Timestamp) -> Duration {
    let wait = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
    wait + Duration::from_millis(10)
}
