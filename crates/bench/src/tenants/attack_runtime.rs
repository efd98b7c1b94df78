//! The threads of the attacker's servers. In reality they run on machines of the attacker, so here they get only the CPU time that
//! Chandler and the API servers leave.

use rustix::process::setpriority_process;
use tokio::runtime::{Builder, Handle, Runtime};

/// The lowest priority of a thread.
const LOWEST: i32 = 19;

/// A runtime whose threads have the lowest priority. What runs on it ends when it is dropped.
pub struct AttackRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl AttackRuntime {
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("attack")
            .on_thread_start(lower_priority)
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Waits for a future that starts servers. The tasks that it spawns run on the threads of this runtime.
    pub fn wait_for<T>(&self, starts: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| self.handle.block_on(starts))
    }
}

impl Drop for AttackRuntime {
    fn drop(&mut self) {
        // Waiting for its threads would block those of the other runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of the calling thread: on Linux, no process means the thread.
fn lower_priority() {
    if let Err(error) = setpriority_process(None, LOWEST) {
        tracing::warn!(%error, "the threads of the attacker's servers have the usual priority");
    }
}
