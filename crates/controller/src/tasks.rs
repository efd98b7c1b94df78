//! The tasks of the controllers. Each is scheduled separately, so that a long reconcile does not delay the others.

use std::panic;

use chandler_core::failure::{Category, Failure};
use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinSet},
};

/// Number of clusters that a loop handles before it yields to other tasks.
const TURN: usize = 32;
/// Limits how many threads work with the files of Sources at the same time. Each may have two copies of 64 MiB in memory.
static FILE_WORK: Semaphore = Semaphore::const_new(4);

/// Concurrent tasks. Dropping this aborts all of them.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<()>);

impl Tasks {
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Aborts all tasks at their next await point.
    pub fn abort(&mut self) {
        self.0.abort_all();
    }

    /// Waits until all tasks have ended. A panic in one of them is resumed here, so that it ends the manager.
    pub async fn join(&mut self) {
        while let Some(ended) = self.0.join_next().await {
            if let Some(Ok(panicked)) = ended.err().map(JoinError::try_into_panic) {
                panic::resume_unwind(panicked);
            }
        }
    }
}

/// Yields to other tasks after every few iterations of a loop over clusters. `done` is the number of the iteration.
pub async fn take_turns(done: usize) {
    if done % TURN == TURN - 1 {
        tokio::task::yield_now().await;
    }
}

/// Runs work with the files of Sources in a thread of its own, because it may take long: the threads of the tasks serve all
/// reconciles.
pub async fn with_files<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let permit = FILE_WORK.acquire().await;
    let work = move || {
        // The work goes on if the caller goes away.
        let _permit = permit;
        work()
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(Category::Internal, error.to_string())))
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
    async fn a_panic_in_a_task_is_resumed_by_join() {
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
    async fn a_long_loop_yields_to_other_tasks() {
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
