//! Keeps a tool's process running: started on demand, on a private socket, with a clean environment; restarted with
//! backoff when it dies; replaced, after its running calls have ended, when it has grown too large.

mod log;
mod process;

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use chandler_core::{
    backoff,
    failure::{Category, Failure},
};
use tokio::sync::Mutex;
use tonic::transport::Channel;

use self::process::Process;
pub use self::process::ProcessStats;

/// How a tool is run.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// The tool's binary.
    pub path: PathBuf,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Resident memory at which the process is replaced once its calls have ended.
    pub soft_memory_limit: u64,
    /// Resident memory at which it is killed.
    pub hard_memory_limit: u64,
    /// How often its memory is looked at.
    pub check_interval: Duration,
}

impl SupervisorConfig {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            path: path.into(),
            arguments: Vec::new(),
            soft_memory_limit: 512 * MIB,
            hard_memory_limit: 1024 * MIB,
            check_interval: Duration::from_secs(5),
        }
    }
}

/// Why the tool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(
        "cannot start the package tool {path}: {source}; build it with `cargo xtask build` or name it with --tool"
    )]
    Start { path: PathBuf, source: std::io::Error },
    #[error("cannot make a private folder for the package tool's socket: {0}")]
    Socket(std::io::Error),
    #[error("the package tool did not answer within {0:?} of its start")]
    NotReady(Duration),
    #[error("the package tool exited while starting: {0}")]
    Exited(String),
    #[error("the package tool failed {count} times in a row; next start in {wait:?}; last: {last}")]
    BackingOff { count: u32, wait: Duration, last: String },
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::new(Category::ToolUnavailable, error.to_string())
    }
}

/// Runs one tool. Clones share it.
#[derive(Clone, Debug)]
pub struct Supervisor {
    config: Arc<SupervisorConfig>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Arc<Process>>,
    failures: u32,
    last_failure: String,
    not_before: Option<Instant>,
    starts: u64,
}

/// A process in use: it is not ended while this lives.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Process>);

impl Lease {
    pub(crate) fn channel(&self) -> Channel {
        self.0.channel()
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

impl Supervisor {
    pub fn new(config: SupervisorConfig) -> Self {
        Self { config: Arc::new(config), state: Arc::default() }
    }

    /// The running process; starts one if there is none.
    pub async fn lease(&self) -> Result<Lease, ToolError> {
        let mut state = self.state.lock().await;
        if let Some(process) = state.current.as_ref().filter(|process| process.is_usable()) {
            return Ok(Lease(process.clone()));
        }
        if let Some(lost) = state.current.take().filter(|process| process.has_exited()) {
            state.note_failure(&format!("process {} ended unexpectedly", lost.pid()));
        }
        state.check_backoff()?;
        let process = self.start(&mut state).await?;
        Ok(Lease(process))
    }

    /// How often a process was started, and the memory of the current one.
    pub async fn stats(&self) -> (u64, Option<ProcessStats>) {
        let state = self.state.lock().await;
        (state.starts, state.current.as_ref().and_then(|process| process.stats()))
    }

    /// Ends the process at once, running operations included. The next call starts another.
    pub async fn kill(&self) {
        if let Some(process) = self.state.lock().await.current.take() {
            process.kill();
        }
    }

    async fn start(&self, state: &mut State) -> Result<Arc<Process>, ToolError> {
        match Process::start(&self.config).await {
            Ok(process) => {
                let process = Arc::new(process);
                state.starts += 1;
                state.current = Some(process.clone());
                tokio::spawn(self.clone().watch_boxed(Arc::downgrade(&process)));
                Ok(process)
            }
            Err(error) => {
                state.note_failure(&error.to_string());
                Err(error)
            }
        }
    }

    /// Boxed, because watching starts replacements and starting spawns watching.
    fn watch_boxed(self, process: Weak<Process>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.watch(process))
    }

    /// Looks after one process until it is gone: replaces it when it has grown, notes when it has proved itself.
    async fn watch(self, process: Weak<Process>) {
        let mut healthy_checks = 0;
        loop {
            tokio::time::sleep(self.config.check_interval).await;
            let Some(process) = process.upgrade() else { return };
            let Some(stats) = process.stats() else { return };
            if stats.resident_bytes >= self.config.hard_memory_limit {
                tracing::warn!(
                    pid = process.pid(),
                    bytes = stats.resident_bytes,
                    "package tool over its hard memory limit: killed"
                );
                process.kill();
                return;
            }
            if stats.resident_bytes >= self.config.soft_memory_limit && !process.is_retired() {
                self.replace(&process).await;
            }
            healthy_checks += 1;
            if healthy_checks == 2 {
                self.state.lock().await.failures = 0;
            }
        }
    }

    /// Starts the replacement first; the old process ends when its last lease does.
    async fn replace(&self, old: &Arc<Process>) {
        let mut state = self.state.lock().await;
        match self.start(&mut state).await {
            Ok(new) => {
                tracing::info!(
                    old = old.pid(),
                    new = new.pid(),
                    "package tool over its memory limit: replaced"
                );
                old.retire();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start a replacement for the package tool; keeping the old one")
            }
        }
    }
}

impl State {
    fn note_failure(&mut self, what: &str) {
        self.failures += 1;
        what.clone_into(&mut self.last_failure);
        // The first restart is immediate: one crash must not hold up the fleet.
        self.not_before =
            (self.failures > 1).then(|| Instant::now() + backoff::delay(self.failures - 1, "package-tool"));
    }

    fn check_backoff(&self) -> Result<(), ToolError> {
        let wait = self.not_before.map(|at| at.saturating_duration_since(Instant::now())).unwrap_or_default();
        if wait.is_zero() {
            return Ok(());
        }
        Err(ToolError::BackingOff { count: self.failures, wait, last: self.last_failure.clone() })
    }
}
