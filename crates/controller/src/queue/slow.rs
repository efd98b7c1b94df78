//! Reconciles that take long, for example because a repository or a cluster does not answer. They go on outside of the limit
//! of concurrent reconciles, so that they do not delay other objects.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use kube::runtime::controller::Action;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::waiting::Waiter;
use crate::{
    ReconcileError,
    sync::{Mutex, MutexGuard},
};

/// After this time, a reconcile does not count towards the limit of concurrent reconciles any more.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How many reconciles of a kind may go on outside of the limit.
const MOST_SLOW: usize = 1_000;

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
    /// Its last reconcile has ended with this result.
    Ended(ReconcileResult),
}

/// The slow reconciles of one kind.
#[derive(Debug, Default)]
pub struct SlowReconciles(Mutex<HashMap<Waiter, SlowReconcile>>);

/// Where slow reconciles go on.
#[derive(Debug, Clone)]
pub struct Outside(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl Outside {
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
    pub fn object_changed(&self, object: &Waiter) {
        if let Some(slow) = self.lock().get_mut(object) {
            slow.outdated = true;
        }
    }

    /// Returns what to do with an object that is due.
    pub fn next(&self, object: &Waiter) -> Next {
        let mut all = self.lock();
        match all.get(object) {
            None => Next::Reconcile,
            Some(SlowReconcile { result: None, .. }) => Next::Wait,
            Some(_) => match all.remove(object) {
                Some(SlowReconcile { result: Some(result), outdated: false }) => Next::Ended(result),
                _ => Next::Reconcile,
            },
        }
    }

    /// Forgets an object that is gone. A reconcile that still runs is kept: if the object is created again, it must not be
    /// reconciled twice at a time.
    pub fn forget(&self, object: &Waiter) {
        let mut all = self.lock();
        if all.get(object).is_some_and(|slow| slow.result.is_some()) {
            all.remove(object);
        }
    }

    /// Reconciles an object. If that takes long, it goes on outside of the limit, and `enqueue` is called when it has ended.
    pub async fn run(
        self: Arc<Self>,
        outside: Outside,
        object: Waiter,
        mut reconcile: BoxFuture<'static, ReconcileResult>,
        enqueue: impl FnOnce() + Send + 'static,
    ) -> ReconcileResult {
        if let Ok(result) = tokio::time::timeout(SLOW_AFTER, &mut reconcile).await {
            return result;
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
        let _ = outside.0.send(rest.boxed());
        Ok(Action::await_change())
    }

    /// Records that a reconcile goes on. Returns `false` if there are too many already.
    fn begin(&self, object: &Waiter) -> bool {
        let mut all = self.lock();
        if all.len() >= MOST_SLOW {
            return false;
        }
        all.insert(object.clone(), SlowReconcile { result: None, outdated: false });
        true
    }

    fn end(&self, object: &Waiter, result: ReconcileResult) {
        if let Some(slow) = self.lock().get_mut(object) {
            slow.result = Some(result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Waiter, SlowReconcile>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn object() -> Waiter {
        (Some("fleet".to_owned()), "blue".to_owned())
    }

    /// Starts a reconcile that ends when the sender is used. The receiver gets a message when the object is enqueued.
    async fn start(
        slow: &Arc<SlowReconciles>,
    ) -> (oneshot::Sender<ReconcileResult>, mpsc::UnboundedReceiver<()>) {
        let (end, ended) = oneshot::channel();
        let (enqueue, enqueued) = mpsc::unbounded_channel();
        let reconcile = async move { ended.await.unwrap() }.boxed();
        let enqueue = move || enqueue.send(()).unwrap();
        let (outside, reconciles) = Outside::new();
        tokio::spawn(reconciles);
        let result = slow.clone().run(outside, object(), reconcile, enqueue).await;
        assert_eq!(result.unwrap(), Action::await_change());
        (end, enqueued)
    }

    #[tokio::test]
    async fn a_slow_reconcile_goes_on_and_its_result_is_used() {
        let slow = Arc::new(SlowReconciles::default());
        assert!(matches!(slow.next(&object()), Next::Reconcile));
        let (end, mut enqueued) = start(&slow).await;
        assert!(matches!(slow.next(&object()), Next::Wait));
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
        let (outside, reconciles) = Outside::new();
        let (mut end, ended) = oneshot::channel::<()>();
        let reconcile =
            async move { ended.await.map(|()| Action::await_change()).map_err(|_| unreachable!()) };
        slow.run(outside, object(), reconcile.boxed(), || {}).await.unwrap();
        drop(reconciles);
        end.closed().await;
    }
}
