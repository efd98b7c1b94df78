//! Objects that want a look, from whatever source; and the loop that gives it to them.

use std::{convert::Infallible, fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use chandler_core::spread::spread;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use kube::{
    Resource, ResourceExt as _,
    runtime::{
        controller::{Action, Config, applier},
        reflector::{ObjectRef, Store},
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::Error;

/// Everything is looked at again this often, give or take a tenth.
pub const RESYNC: Duration = Duration::from_mins(10);
/// Events that come together are handled together.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// Passes at the same time. A fleet that starts at once must not drown its own API server: the Lease is renewed there.
const PASSES: u16 = 32;
const RETRY: Duration = Duration::from_secs(10);

/// Asks for a look at objects of one kind.
#[derive(Debug)]
pub struct Trigger<K: Resource>(mpsc::UnboundedSender<ObjectRef<K>>);

impl<K: Resource> Clone for Trigger<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Resource + 'static> Trigger<K> {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<ObjectRef<K>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub fn look_at(&self, object: ObjectRef<K>) {
        // Nobody listens only while the process ends.
        let _ = self.0.send(object);
    }
}

/// Gives each object that is asked for a pass of `reconcile`, one at a time per object, until the queue closes.
pub async fn run<K, C, F>(
    kind: &'static str,
    store: Store<K>,
    queue: mpsc::UnboundedReceiver<ObjectRef<K>>,
    context: Arc<C>,
    reconcile: impl Fn(Arc<K>, Arc<C>) -> F,
) where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
    C: Send + Sync + 'static,
{
    let queue = UnboundedReceiverStream::new(queue).map(Ok::<_, Infallible>);
    applier(
        move |object: Arc<K>, context| reconcile(object, context).boxed(),
        move |object, error: &Error, _| {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            tracing::warn!(kind, namespace, name, category = %error.category(), "pass broke off: {error}");
            Action::requeue(RETRY)
        },
        context,
        store,
        queue,
        Config::default().debounce(DEBOUNCE).concurrency(PASSES),
    )
    .for_each(|_| std::future::ready(()))
    .await;
}

/// Look again at the next resync.
pub fn resync(object: &impl kube::ResourceExt) -> Action {
    Action::requeue(RESYNC.mul_f64(0.9 + 0.2 * spread(&object.uid().unwrap_or_default())))
}

/// Look again at this time.
pub fn at(time: Timestamp) -> Action {
    let wait = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
    Action::requeue(wait + Duration::from_millis(10))
}
