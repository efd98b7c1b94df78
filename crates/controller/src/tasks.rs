//! The tasks of the controllers: each is scheduled by itself, so that a long reconcile of one delays no other.

use std::panic;

use tokio::task::{JoinError, JoinSet};

/// Clusters that a loop handles before it lets other tasks run.
const TURN: usize = 32;

/// Tasks that run side by side. Dropping them aborts all.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<()>);

impl Tasks {
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Tells all tasks to end where they wait next.
    pub fn abort(&mut self) {
        self.0.abort_all();
    }

    /// Returns when all tasks have ended. A panic in one of them continues here, so that it ends the manager.
    pub async fn join(&mut self) {
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

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;

    #[tokio::test]
    #[should_panic(expected = "broken")]
    async fn a_panic_in_a_task_continues_where_it_is_joined() {
        let mut tasks = Tasks::default();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("broken") });
        tasks.join().await;
    }

    #[tokio::test]
    async fn aborted_tasks_end() {
        let mut tasks = Tasks::default();
        tasks.spawn(std::future::pending());
        tasks.abort();
        tasks.join().await;
    }

    #[tokio::test]
    async fn a_long_loop_lets_other_tasks_run() {
        let ran = Arc::new(AtomicBool::new(false));
        let other = ran.clone();
        tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
        for done in 0..TURN {
            assert!(!ran.load(Ordering::Relaxed), "before {done}");
            take_turns(done).await;
        }
        assert!(ran.load(Ordering::Relaxed));
    }
}
