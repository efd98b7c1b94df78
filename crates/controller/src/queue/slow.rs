//! Reconciles that wait long for a repository or a workload cluster. They go on outside of the limit of concurrent
//! reconciles, so that they do not delay other objects. Those that wait for the management cluster count: the limit protects
//! it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use kube::runtime::controller::Action;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::ObjectName;
use crate::{
    ReconcileError,
    locks::{Mutex, MutexGuard},
};

/// After waiting for this time, a reconcile does not count towards the limit of concurrent reconciles any more.
const SLOW_AFTER: Duration = Duration::from_millis(200);
/// How many reconciles of a kind may go on outside of the limit.
const MAX_SLOW_RECONCILES: usize = 1_000;
/// With so many of them, there is little room for others.
const SCARCE: usize = MAX_SLOW_RECONCILES / 4 * 3;
/// With so many of them in its namespace while room is scarce, the reconcile of another object is put off, so that one namespace
/// cannot use up the limit of all.
const MAX_SLOW_PER_NAMESPACE: usize = 250;

tokio::task_local! {
    /// Notified when the current reconcile waits long.
    static WAITS_LONG: Arc<Notify>;
}

/// Waits for a repository or a workload cluster. If that takes long, the current reconcile goes on outside of the limit of
/// concurrent reconciles.
pub fn outside_of_limit<F: Future>(waiting: F) -> impl Future<Output = F::Output> {
    let mut waiting = Box::pin(waiting);
    async move {
        if let Ok(output) = tokio::time::timeout(SLOW_AFTER, &mut waiting).await {
            return output;
        }
        // Fails in a task that is not a reconcile, which has no limit.
        let _ = WAITS_LONG.try_with(|waits_long| waits_long.notify_one());
        waiting.await
    }
}

type ReconcileResult = Result<Action, ReconcileError>;

/// A reconcile that goes on, or has gone on, outside of the limit.
#[derive(Debug)]
struct SlowReconcile {
    /// `None` while it runs.
    result: Option<ReconcileResult>,
    /// Whether the object was enqueued since it began.
    outdated: bool,
}

/// What to do with an object.
pub enum Next {
    Reconcile,
    /// Its last reconcile is still running. The object is enqueued when it has ended.
    Wait,
    /// Too many reconciles of its namespace are slow. It is due again later.
    PutOff,
    /// Its last reconcile has ended with this result.
    Ended(ReconcileResult),
}

/// The slow reconciles of one kind.
#[derive(Debug, Default)]
pub struct SlowReconciles(Mutex<HashMap<ObjectName, SlowReconcile>>);

/// Where slow reconciles go on.
#[derive(Debug, Clone)]
pub struct SlowExecutor(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl SlowExecutor {
    /// Also returns the future that runs the slow reconciles. They end when it is dropped, as the others do.
    pub fn new() -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (
            Self(sender),
            UnboundedReceiverStream::new(receiver).for_each_concurrent(None, |reconcile| reconcile),
        )
    }
}

impl SlowReconciles {
    /// Records that an object was enqueued because something has changed.
    pub fn object_changed(&self, object: &ObjectName) {
        if let Some(slow) = self.lock().get_mut(object) {
            slow.outdated = true;
        }
    }

    /// Returns what to do with an object that is due.
    pub fn next(&self, object: &ObjectName) -> Next {
        let mut all = self.lock();
        let is_running = |((namespace, _), slow): &(&ObjectName, &SlowReconcile)| {
            *namespace == object.0 && slow.result.is_none()
        };
        if !all.contains_key(object) {
            let is_put_off =
                all.len() >= SCARCE && must_wait(all.len(), all.iter().filter(is_running).count());
            return if is_put_off { Next::PutOff } else { Next::Reconcile };
        }
        match all.get_mut(object) {
            Some(slow) if slow.result.is_none() => {
                // It may have been enqueued before the reconcile was known to be slow.
                slow.outdated = true;
                Next::Wait
            }
            _ => match all.remove(object) {
                Some(SlowReconcile { result: Some(result), outdated: false }) => Next::Ended(result),
                _ => Next::Reconcile,
            },
        }
    }

    /// Forgets an object that is gone. A reconcile that still runs is kept: if the object is created again, it must not be
    /// reconciled twice at a time.
    pub fn forget(&self, object: &ObjectName) {
        let mut all = self.lock();
        if all.get(object).is_some_and(|slow| slow.result.is_some()) {
            all.remove(object);
        }
    }

    /// Reconciles an object. If it waits long for others, it goes on outside of the limit, and `enqueue` is called when it has
    /// ended.
    pub async fn run(
        self: Arc<Self>,
        executor: SlowExecutor,
        object: ObjectName,
        reconcile: impl Future<Output = ReconcileResult> + Send + 'static,
        enqueue: impl FnOnce() + Send + 'static,
    ) -> ReconcileResult {
        let waits_long = Arc::new(Notify::new());
        let mut reconcile = WAITS_LONG.scope(waits_long.clone(), reconcile).boxed();
        tokio::select! {
            result = &mut reconcile => return result,
            () = waits_long.notified() => {}
        }
        if !self.begin(&object) {
            return reconcile.await;
        }
        let rest = async move {
            let result = reconcile.await;
            self.end(&object, result);
            enqueue();
        };
        // Fails only when the queue is closed.
        let _ = executor.0.send(rest.boxed());
        Ok(Action::await_change())
    }

    /// Records that a reconcile goes on. Returns `false` if there are too many already.
    fn begin(&self, object: &ObjectName) -> bool {
        let mut all = self.lock();
        if all.len() >= MAX_SLOW_RECONCILES {
            return false;
        }
        all.insert(object.clone(), SlowReconcile { result: None, outdated: false });
        true
    }

    fn end(&self, object: &ObjectName, result: ReconcileResult) {
        if let Some(slow) = self.lock().get_mut(object) {
            slow.result = Some(result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, SlowReconcile>> {
        self.0.lock()
    }
}

/// Returns whether another reconcile of a namespace waits while `own` of `all` slow ones are its own.
fn must_wait(all: usize, own: usize) -> bool {
    all >= SCARCE && own >= MAX_SLOW_PER_NAMESPACE
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn object() -> ObjectName {
        (Some("fleet".to_owned()), "blue".to_owned())
    }

    /// Starts a reconcile that ends when the sender is used. The receiver gets a message when the object is enqueued.
    async fn start(
        slow: &Arc<SlowReconciles>,
    ) -> (oneshot::Sender<ReconcileResult>, mpsc::UnboundedReceiver<()>) {
        let (end, ended) = oneshot::channel();
        let (enqueue, enqueued) = mpsc::unbounded_channel();
        let reconcile = async move { outside_of_limit(ended).await.unwrap() };
        let enqueue = move || enqueue.send(()).unwrap();
        let (executor, reconciles) = SlowExecutor::new();
        tokio::spawn(reconciles);
        let result = slow.clone().run(executor, object(), reconcile, enqueue).await;
        assert_eq!(result.unwrap(), Action::await_change());
        (end, enqueued)
    }

    #[tokio::test]
    async fn a_slow_reconcile_goes_on_and_its_result_is_used() {
        let slow = Arc::new(SlowReconciles::default());
        assert!(matches!(slow.next(&object()), Next::Reconcile));
        let (end, mut enqueued) = start(&slow).await;
        end.send(Ok(Action::requeue(Duration::from_mins(1)))).unwrap();
        enqueued.recv().await;
        let Next::Ended(Ok(action)) = slow.next(&object()) else { panic!("the result is not used") };
        assert_eq!(action, Action::requeue(Duration::from_mins(1)));
        assert!(matches!(slow.next(&object()), Next::Reconcile));
    }

    #[tokio::test]
    async fn an_object_that_changes_during_or_after_a_slow_reconcile_is_reconciled_again() {
        for during in [true, false] {
            let slow = Arc::new(SlowReconciles::default());
            let (end, mut enqueued) = start(&slow).await;
            if during {
                slow.object_changed(&object());
            }
            end.send(Ok(Action::await_change())).unwrap();
            enqueued.recv().await;
            slow.object_changed(&object());
            assert!(matches!(slow.next(&object()), Next::Reconcile), "{during}");
        }
    }

    #[tokio::test]
    async fn an_object_that_is_due_during_a_slow_reconcile_is_reconciled_again() {
        let slow = Arc::new(SlowReconciles::default());
        let (end, mut enqueued) = start(&slow).await;
        assert!(matches!(slow.next(&object()), Next::Wait), "enqueued before the reconcile was slow");
        end.send(Ok(Action::await_change())).unwrap();
        enqueued.recv().await;
        assert!(matches!(slow.next(&object()), Next::Reconcile));
    }

    #[tokio::test]
    async fn an_object_that_is_created_again_waits_for_the_reconcile_of_its_predecessor() {
        let slow = Arc::new(SlowReconciles::default());
        let (end, mut enqueued) = start(&slow).await;
        slow.forget(&object());
        slow.object_changed(&object());
        assert!(matches!(slow.next(&object()), Next::Wait));
        end.send(Ok(Action::await_change())).unwrap();
        enqueued.recv().await;
        assert!(matches!(slow.next(&object()), Next::Reconcile));
    }

    #[tokio::test]
    async fn slow_reconciles_end_with_their_queue() {
        let slow = Arc::new(SlowReconciles::default());
        let (executor, reconciles) = SlowExecutor::new();
        let (mut end, ended) = oneshot::channel::<ReconcileResult>();
        let reconcile = async move { outside_of_limit(ended).await.unwrap() };
        slow.run(executor, object(), reconcile, || {}).await.unwrap();
        drop(reconciles);
        end.closed().await;
    }

    #[tokio::test]
    async fn beyond_their_limit_a_reconcile_that_waits_long_counts() {
        let slow = Arc::new(SlowReconciles::default());
        for number in 0..MAX_SLOW_RECONCILES {
            assert!(slow.begin(&(None, number.to_string())));
        }
        let (executor, _reconciles) = SlowExecutor::new();
        let action = Action::requeue(Duration::from_mins(1));
        let waiting = async move {
            outside_of_limit(tokio::time::sleep(SLOW_AFTER * 2)).await;
            Ok(Action::requeue(Duration::from_mins(1)))
        };
        assert_eq!(slow.clone().run(executor, object(), waiting, || {}).await.unwrap(), action);
        assert_eq!(slow.lock().len(), MAX_SLOW_RECONCILES);
    }

    #[test]
    fn a_namespace_waits_only_while_room_is_scarce() {
        let rows = [
            (MAX_SLOW_PER_NAMESPACE, MAX_SLOW_PER_NAMESPACE, false),
            (SCARCE - 1, SCARCE - 1, false),
            (SCARCE, SCARCE, true),
            (SCARCE, MAX_SLOW_PER_NAMESPACE, true),
            (SCARCE, MAX_SLOW_PER_NAMESPACE - 1, false),
            (MAX_SLOW_RECONCILES, 0, false),
        ];
        for (all, own, expected) in rows {
            assert_eq!(must_wait(all, own), expected, "{own} of {all}");
        }
    }

    #[tokio::test]
    async fn a_namespace_with_too_many_slow_reconciles_delays_only_itself() {
        let slow = SlowReconciles::default();
        let named = |namespace: &str, name: &str| (Some(namespace.to_owned()), name.to_owned());
        for number in 0..SCARCE {
            assert!(matches!(slow.next(&named("slow", "new")), Next::Reconcile));
            assert!(slow.begin(&named("slow", &number.to_string())));
        }
        assert!(matches!(slow.next(&named("slow", "new")), Next::PutOff));
        assert!(matches!(slow.next(&named("slow", "1")), Next::Wait), "it is one of them");
        assert!(matches!(slow.next(&named("other", "new")), Next::Reconcile));
        slow.end(&named("slow", "0"), Ok(Action::await_change()));
        assert!(matches!(slow.next(&named("slow", "0")), Next::Ended(_)));
        assert!(matches!(slow.next(&named("slow", "new")), Next::Reconcile));
    }

    #[tokio::test]
    async fn a_reconcile_that_waits_for_the_management_cluster_counts() {
        let slow = Arc::new(SlowReconciles::default());
        let (executor, _reconciles) = SlowExecutor::new();
        let action = Action::requeue(Duration::from_mins(1));
        let waiting = async move {
            tokio::time::sleep(SLOW_AFTER + Duration::from_millis(100)).await;
            Ok(Action::requeue(Duration::from_mins(1)))
        };
        assert_eq!(slow.clone().run(executor, object(), waiting, || {}).await.unwrap(), action);
        assert!(matches!(slow.next(&object()), Next::Reconcile));
    }
}
