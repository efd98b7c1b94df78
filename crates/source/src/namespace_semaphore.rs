//! Slots for concurrent work that namespaces share fairly.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chandler_core::namespace_shares::{NamespaceShares, Order};
use tokio::sync::oneshot;

use crate::SourceError;

/// How long a caller waits for a slot. Callers that wait occupy reconciles, which other namespaces need, too.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A limited number of slots. A namespace with much slow work, such as reads of many repositories, does not keep others waiting.
#[derive(Debug)]
pub struct NamespaceSemaphore(Arc<Shared>);

#[derive(Debug)]
struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    share: NamespaceShares,
    /// In the order of arrival.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    namespace: String,
    granted: oneshot::Sender<NamespacePermit>,
}

/// A slot. It is released when it is dropped.
#[derive(Debug)]
pub struct NamespacePermit {
    namespace: String,
    shared: Arc<Shared>,
}

impl NamespaceSemaphore {
    pub fn new(slots: usize) -> Self {
        Self::ordered(slots, Order::FewestRunning)
    }

    /// Creates slots that are given in this order.
    pub fn ordered(slots: usize, order: Order) -> Self {
        let state = State { share: NamespaceShares::new(slots, order), waiting: VecDeque::new() };
        Self(Arc::new(Shared(Mutex::new(state))))
    }

    /// Waits for a slot, but not for long.
    pub async fn acquire(&self, namespace: &str) -> Result<NamespacePermit, SourceError> {
        let slot = tokio::time::timeout(MAX_WAIT, self.wait(namespace)).await;
        slot.ok().flatten().ok_or_else(|| SourceError::Busy { namespace: namespace.to_owned() })
    }

    /// Waits for a slot as long as it takes, for work that does not wait for repositories. `None` does not occur: a caller stays
    /// in the queue until it gets a slot or goes away.
    pub async fn wait(&self, namespace: &str) -> Option<NamespacePermit> {
        let (granted, slot) = oneshot::channel();
        self.0.lock().waiting.push_back(Waiting { namespace: namespace.to_owned(), granted });
        start_waiting(&self.0);
        slot.await.ok()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Occupies a slot for the next caller that still waits, if one can start.
    fn start_next(&self) -> Option<Waiting> {
        let mut state = self.lock();
        if !state.share.has_free_slot() {
            return None;
        }
        state.waiting.retain(|waiting| !waiting.granted.is_closed());
        let next = state.share.next(state.waiting.iter().map(|waiting| waiting.namespace.as_str()))?;
        let next = state.waiting.remove(next)?;
        state.share.start(&next.namespace);
        Some(next)
    }
}

/// Grants free slots to waiting callers.
fn start_waiting(shared: &Arc<Shared>) {
    while let Some(Waiting { namespace, granted }) = shared.start_next() {
        // If the caller has gone away meanwhile, the slot is dropped and thereby released.
        let _ = granted.send(NamespacePermit { namespace, shared: shared.clone() });
    }
}

impl Drop for NamespacePermit {
    fn drop(&mut self) {
        self.shared.lock().share.end(&self.namespace);
        start_waiting(&self.shared);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_namespace_whose_work_hangs_does_not_keep_others_waiting() {
        let slots = NamespaceSemaphore::new(4);
        let mut hanging = Vec::new();
        for _ in 0..3 {
            hanging.push(slots.acquire("slow").await.unwrap());
        }
        let mut more: Vec<_> = (0..10).map(|_| Box::pin(slots.acquire("slow"))).collect();
        assert!(more.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        for _ in 0..5 {
            drop(slots.acquire("other").now_or_never().unwrap().unwrap());
        }
        let other = slots.acquire("other").now_or_never().unwrap().unwrap();
        let mut second = Box::pin(slots.acquire("other"));
        assert!((&mut second).now_or_never().is_none(), "all slots are occupied");
        hanging.pop();
        let second = second.now_or_never().unwrap().unwrap();
        assert!(more.iter_mut().all(|waiting| waiting.now_or_never().is_none()), "it has fewer slots");
        drop((other, second));
        let started: Vec<_> = more.iter_mut().filter_map(FutureExt::now_or_never).collect();
        assert_eq!(started.len(), 1, "three of four slots");
    }

    #[tokio::test]
    async fn the_next_slot_is_for_the_namespace_that_has_the_fewest() {
        let slots = NamespaceSemaphore::new(2);
        let mut running = vec![slots.wait("many").await, slots.wait("many").await];
        let mut more: Vec<_> = (0..5).map(|_| Box::pin(slots.wait("many"))).collect();
        assert!(more.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let mut other = Box::pin(slots.wait("other"));
        assert!((&mut other).now_or_never().is_none());
        running.pop();
        assert!(other.now_or_never().flatten().is_some(), "it does not wait for those that came first");
    }

    #[tokio::test]
    async fn callers_that_go_away_release_their_slot() {
        let slots = NamespaceSemaphore::new(1);
        let first = slots.acquire("a").await.unwrap();
        let mut gone = Box::pin(slots.acquire("b"));
        let mut waiting = Box::pin(slots.acquire("c"));
        assert!((&mut gone).now_or_never().is_none() && (&mut waiting).now_or_never().is_none());
        drop(first);
        drop(gone);
        assert!(waiting.now_or_never().is_some());
    }
}
