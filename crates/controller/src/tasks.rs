//! The tasks of the controllers: each is scheduled by itself, so that a long reconcile of one delays no other.

use std::panic;

use tokio::task::{JoinError, JoinSet};

/// Clusters that a loop handles before it lets other tasks run.
const TURN: usize = 32;

/// Tasks that run until one of them ends. Dropping them aborts all.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<()>);

impl Tasks {
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Returns when all tasks have ended. A panic in one of them continues here, so that it ends the manager.
    pub async fn join(mut self) {
        while let Some(ended) = self.0.join_next().await {
            if let Some(Ok(panicked)) = ended.err().map(JoinError::try_into_panic) {
                panic::resume_unwind(panicked);
            }
        }
    }
}

/// Lets other tasks run after every few iterations of a loop over clusters. `done` counts the iterations.
pub async fn take_turns(done: usize) {
    if done % TURN == TURN - 1 {
        tokio::task::yield_now().await;
    }
}
