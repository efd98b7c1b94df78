//! Commands to the processes of a supervisor, and their ends.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::process::ChildStdin;
use tokio_util::sync::CancellationToken;

/// The processes that have not ended, retired ones included, and the limit of the Lease that they obey.
#[derive(Debug, Default)]
pub struct Controls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lease_until: Option<Duration>,
    processes: Vec<Arc<Control>>,
}

impl Controls {
    /// Adds a process that has just been started. It gets the limit of the Lease before it can serve a call.
    pub fn add(&self, pid: u32, stdin: Option<ChildStdin>) -> ControlGuard {
        let control = Arc::new(Control {
            pid,
            stdin: Mutex::new(stdin),
            kill: CancellationToken::new(),
            exited: CancellationToken::new(),
        });
        let mut state = lock(&self.0);
        if let Some(until) = state.lease_until {
            control.send(&lease_until(until));
        }
        state.processes.retain(|known| !known.has_exited());
        state.processes.push(control.clone());
        ControlGuard(control)
    }

    /// Sends the limit of the Lease to all processes. Does not block.
    pub fn set_lease_until(&self, until: Duration) {
        let mut state = lock(&self.0);
        state.lease_until = Some(until);
        for process in &state.processes {
            process.send(&lease_until(until));
        }
    }

    /// Returns the processes that have not ended.
    pub fn running(&self) -> Vec<Arc<Control>> {
        lock(&self.0).processes.iter().filter(|known| !known.has_exited()).cloned().collect()
    }
}

fn lease_until(until: Duration) -> String {
    format!("lease-until {}", until.as_nanos())
}

/// Controls one process. It does not keep the process in use.
#[derive(Debug)]
pub struct Control {
    pid: u32,
    stdin: Mutex<Option<ChildStdin>>,
    kill: CancellationToken,
    exited: CancellationToken,
}

impl Control {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes a command to the standard input of the process. Does not block: a process that does not read its standard
    /// input misses the command.
    pub fn send(&self, command: &str) {
        let Some(stdin) = &*lock(&self.stdin) else { return };
        // The pipe is in non-blocking mode, and the kernel writes so short a line as a whole or not at all.
        if let Err(error) = rustix::io::write(stdin, format!("{command}\n").as_bytes()) {
            tracing::debug!(pid = self.pid, %error, "the process does not read its standard input");
        }
    }

    /// Closes the standard input of the process, which then ends.
    pub fn close_stdin(&self) {
        lock(&self.stdin).take();
    }

    /// Ends the process at once.
    pub fn kill(&self) {
        self.kill.cancel();
    }

    /// Completes when the process is to be ended at once.
    pub async fn killed(&self) {
        self.kill.cancelled().await;
    }

    pub fn has_exited(&self) -> bool {
        self.exited.is_cancelled()
    }

    /// Completes when the process has exited.
    pub async fn exited(&self) {
        self.exited.cancelled().await;
    }
}

/// Held by the owner of the process until the process has exited.
#[derive(Debug)]
pub struct ControlGuard(Arc<Control>);

impl ControlGuard {
    pub fn control(&self) -> &Arc<Control> {
        &self.0
    }
}

impl Drop for ControlGuard {
    fn drop(&mut self) {
        self.0.close_stdin();
        self.0.exited.cancel();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
