//! Supervises a process: starts it on demand, on a private socket, with a clean environment; restarts it with backoff when
//! it exits; replaces it when it uses too much memory, after its running calls have ended.

mod control;
mod log;
mod process;

use std::{
    fmt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use chandler_core::{
    backoff,
    failure::{Category, Failure},
};
use futures::future::join_all;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub use self::process::ProcessStats;
use self::{control::Controls, process::Process};

/// After so many checks, a process counts as healthy and earlier failures are forgotten.
const HEALTHY_CHECKS: u32 = 2;
/// How long processes that were killed may take to exit.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// The service that a supervised process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    PackageTool,
    Templates,
}

impl Service {
    /// The flag of the manager that names its binary.
    fn flag(self) -> &'static str {
        match self {
            Self::PackageTool => "--tool",
            Self::Templates => "--templates",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PackageTool => "package tool",
            Self::Templates => "template service",
        })
    }
}

/// How a process is run.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// The service that the process serves.
    pub service: Service,
    /// The tool's binary.
    pub path: PathBuf,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Resident memory at which the process is replaced once its calls have ended.
    pub soft_memory_limit: u64,
    /// Resident memory at which it is killed.
    pub hard_memory_limit: u64,
    /// How often its memory is checked.
    pub check_interval: Duration,
    /// Its log level: debug, info, warn or error. It may change later.
    pub log_level: watch::Receiver<&'static str>,
}

impl SupervisorConfig {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            service: Service::PackageTool,
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            soft_memory_limit: 512 * MIB,
            hard_memory_limit: 1024 * MIB,
            check_interval: Duration::from_secs(5),
            log_level: watch::channel("info").1,
        }
    }

    /// Runs the template service that is in the Helm driver.
    pub fn templates(driver: impl Into<PathBuf>) -> Self {
        Self {
            service: Service::Templates,
            arguments: vec!["--service".to_owned(), "template".to_owned()],
            ..Self::new(driver)
        }
    }
}

/// Why a supervised process cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(
        "cannot start the {service} {path}: {source}; build it with `cargo xtask build` or name it with {}", service.flag()
    )]
    Start { service: Service, path: PathBuf, source: std::io::Error },
    #[error("cannot create a private directory for a socket: {0}")]
    Socket(std::io::Error),
    #[error("the {0} did not answer within {1:?} of its start")]
    NotReady(Service, Duration),
    #[error("the {0} exited while starting: {1}")]
    Exited(Service, String),
    #[error("the {service} failed {count} times in a row; next start in {wait:?}; last: {last}")]
    BackingOff { service: Service, count: u32, wait: Duration, last: String },
    #[error("this manager starts no more operations: it is stopping, or another manager leads")]
    Closed,
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::new(Category::ToolUnavailable, error.to_string())
    }
}

/// Supervises one process. Clones share it; the process ends with the last of them.
#[derive(Clone, Debug)]
pub struct Supervisor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: SupervisorConfig,
    state: Mutex<State>,
    controls: Controls,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Arc<Process>>,
    failures: u32,
    last_failure: String,
    not_before: Option<Instant>,
    starts: u64,
}

/// A process in use. A process that is replaced is not ended while a guard of it exists.
#[derive(Clone, Debug)]
pub struct ProcessGuard(Arc<Process>);

impl ProcessGuard {
    /// The channel to the process.
    pub fn channel(&self) -> Channel {
        self.0.channel()
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

impl Supervisor {
    pub fn new(config: SupervisorConfig) -> Self {
        Self(Arc::new(Shared {
            config,
            state: Mutex::default(),
            controls: Controls::default(),
            closed: CancellationToken::new(),
        }))
    }

    /// The binary.
    pub fn path(&self) -> &Path {
        &self.0.config.path
    }

    /// Returns the running process; starts one if there is none.
    pub async fn acquire(&self) -> Result<ProcessGuard, ToolError> {
        let mut state = self.0.state.lock().await;
        if self.0.closed.is_cancelled() {
            return Err(ToolError::Closed);
        }
        if let Some(process) = state.current.as_ref().filter(|process| process.is_usable()) {
            return Ok(ProcessGuard(process.clone()));
        }
        if let Some(lost) = state.current.take().filter(|process| process.has_exited()) {
            state.note_failure(&format!("process {} ended unexpectedly", lost.pid()));
        }
        state.check_backoff(self.0.config.service)?;
        let process = self.start(&mut state).await?;
        Ok(ProcessGuard(process))
    }

    /// Returns the running process, if there is one.
    pub(crate) async fn current(&self) -> Option<ProcessGuard> {
        let state = self.0.state.lock().await;
        let usable = state.current.as_ref().filter(|process| process.is_usable());
        usable.map(|process| ProcessGuard(process.clone()))
    }

    /// Returns how often a process was started, and the memory of the current one.
    pub async fn stats(&self) -> (u64, Option<ProcessStats>) {
        let state = self.0.state.lock().await;
        (state.starts, state.current.as_ref().and_then(|process| process.stats()))
    }

    /// Returns whether a process that was replaced because of its memory still runs operations.
    pub fn is_draining(&self) -> bool {
        self.0.controls.running().len() > 1
    }

    /// Ends the process at once, running operations included. The next call starts another.
    pub async fn kill(&self) {
        self.0.state.lock().await.kill();
    }

    /// Ends all processes at once, running operations included, and refuses to start another. Returns when they have
    /// exited, but waits a few seconds at most.
    pub async fn close(&self) {
        self.0.closed.cancel();
        self.0.state.lock().await.kill();
        // Processes that were replaced and still run operations are among them.
        let running = self.0.controls.running();
        for process in &running {
            process.kill();
        }
        let exits = join_all(running.iter().map(|process| process.exited()));
        if tokio::time::timeout(EXIT_LIMIT, exits).await.is_err() {
            let left = running.iter().filter(|process| !process.has_exited()).map(|process| process.pid());
            tracing::warn!(pids = ?left.collect::<Vec<_>>(), "processes were killed and have not exited");
        }
    }

    /// Limits how long the processes may send requests to clusters: until the Lease of this manager expires, as time since
    /// boot (`CLOCK_BOOTTIME`). Call it after each renewal; without a call there is no limit. The limit is written to the
    /// standard input of all processes before this returns, to replaced ones that still run operations too, and to a process
    /// that starts later before its first call. Does not block and needs no runtime.
    pub fn set_lease_until(&self, until: Duration) {
        self.0.controls.set_lease_until(until);
    }

    async fn start(&self, state: &mut State) -> Result<Arc<Process>, ToolError> {
        let started = tokio::select! {
            started = Process::start(&self.0.config, &self.0.controls) => started,
            () = self.0.closed.cancelled() => return Err(ToolError::Closed),
        };
        match started {
            Ok(process) => {
                let process = Arc::new(process);
                state.starts += 1;
                state.current = Some(process.clone());
                tokio::spawn(watch(Arc::downgrade(&self.0), Arc::downgrade(&process)));
                Ok(process)
            }
            Err(error) => {
                state.note_failure(&error.to_string());
                Err(error)
            }
        }
    }

    /// Checks a process. Returns `false` if it has ended.
    async fn check(&self, process: &Arc<Process>) -> bool {
        let Some(stats) = process.stats() else { return false };
        if stats.resident_bytes >= self.0.config.hard_memory_limit {
            let (pid, bytes) = (process.pid(), stats.resident_bytes);
            tracing::warn!(pid, bytes, "package tool over its hard memory limit: killed");
            process.kill();
            return false;
        }
        if stats.resident_bytes >= self.0.config.soft_memory_limit && !process.is_retired() {
            self.replace(process).await;
        }
        true
    }

    /// Starts the replacement first; the old process ends when its last guard is dropped.
    async fn replace(&self, old: &Arc<Process>) {
        let mut state = self.0.state.lock().await;
        if self.0.closed.is_cancelled() {
            return;
        }
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
                tracing::warn!(%error, "cannot start a replacement for the package tool; keeping the old one");
            }
        }
    }
}

/// Checks one process regularly for as long as it and its supervisor live: replaces it when it uses too much memory, and
/// forgets earlier failures once it counts as healthy. Boxed, because it is recursive: checking starts replacements, and
/// starting spawns checks.
fn watch(shared: Weak<Shared>, process: Weak<Process>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut healthy_checks = 0;
        while let Some(interval) = shared.upgrade().map(|shared| shared.config.check_interval) {
            tokio::time::sleep(interval).await;
            let (Some(shared), Some(process)) = (shared.upgrade(), process.upgrade()) else { return };
            let supervisor = Supervisor(shared);
            if !supervisor.check(&process).await {
                return;
            }
            healthy_checks += 1;
            if healthy_checks == HEALTHY_CHECKS {
                supervisor.0.state.lock().await.failures = 0;
            }
        }
    })
}

impl State {
    fn kill(&mut self) {
        if let Some(process) = self.current.take() {
            process.kill();
        }
    }

    fn note_failure(&mut self, what: &str) {
        self.failures += 1;
        what.clone_into(&mut self.last_failure);
        // The first restart is immediate: one crash must not delay all clusters.
        self.not_before = (self.failures > 1).then(|| {
            Instant::now() + backoff::delay(Category::ToolUnavailable, self.failures - 1, "package-tool")
        });
    }

    fn check_backoff(&self, service: Service) -> Result<(), ToolError> {
        let wait = self.not_before.map(|at| at.saturating_duration_since(Instant::now())).unwrap_or_default();
        if wait.is_zero() {
            return Ok(());
        }
        Err(ToolError::BackingOff { service, count: self.failures, wait, last: self.last_failure.clone() })
    }
}
