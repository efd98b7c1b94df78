//! Runs resolutions on threads for blocking work, so that a complex one does not keep the reconciles of others waiting.

use chandler_source::{NamespacePermit, NamespaceSemaphore};

use crate::queue::outside_of_limit;

/// Number of concurrent resolutions. A namespace gets at most three of them.
const SLOTS: usize = 4;

/// Threads for resolutions, which namespaces share.
#[derive(Debug)]
pub struct Solver(NamespaceSemaphore);

/// A thread for a resolution.
#[derive(Debug)]
pub struct SolverSlot {
    _permit: NamespacePermit,
}

impl Default for Solver {
    fn default() -> Self {
        Self(NamespaceSemaphore::new(SLOTS))
    }
}

impl Solver {
    /// Waits for a thread for a cluster of this namespace. Resolutions are short: see
    /// [`chandler_core::resolution::BoundedResolver`]. Returns `None` if the process ends.
    pub async fn slot(&self, namespace: &str) -> Option<SolverSlot> {
        outside_of_limit(self.0.wait(namespace)).await.map(|permit| SolverSlot { _permit: permit })
    }
}

impl SolverSlot {
    /// Runs `work`. Returns `None` if it panics, or if the process ends.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let work = move || {
            // The thread holds the slot, because the caller may go away.
            let _slot = self;
            work()
        };
        match outside_of_limit(tokio::task::spawn_blocking(work)).await {
            Ok(done) => Some(done),
            Err(error) => {
                tracing::error!(%error, "a resolution of versions was aborted");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn a_namespace_with_long_work_does_not_keep_others_waiting() {
        let solver = Arc::new(Solver::default());
        let (ends, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let long: Vec<_> = (0..10)
            .map(|_| {
                let (solver, ended) = (solver.clone(), ended.clone());
                let wait = move || ended.lock().unwrap().recv().is_err();
                tokio::spawn(async move { solver.slot("many").await.unwrap().run(wait).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let other = solver.slot("other").await.unwrap().run(|| 7).await;
        assert_eq!(other, Some(7));
        drop(ends);
        for one in long {
            assert_eq!(one.await.unwrap(), Some(true));
        }
    }
}
