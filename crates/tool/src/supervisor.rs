//! Supervises a process: starts it on demand, on a private socket, with a clean environment and limits; starts it with backoff if
//! it does not start; replaces it when it uses too much memory, after its running calls have ended.

mod control;
mod guard;
mod log;
mod process;
mod requests;
mod slots;

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use chandler_core::{
    backoff,
    failure::{Category, Failure},
};
use futures::future::join_all;
use tokio::sync::{OwnedSemaphorePermit, RwLock, watch};
use tokio_util::sync::CancellationToken;

pub use self::{
    control::Controls,
    guard::{CallFailure, ProcessGuard},
    process::{ProcessStats, shrink},
    requests::read as read_requests,
    slots::Slots,
};
use self::{
    control::lock,
    guard::Turn,
    process::{Process, over_limit},
    slots::TURN,
};

/// How long processes that were killed may take to exit.
const EXIT_LIMIT: Duration = Duration::from_secs(5);
/// How long an operation may wait for a process while others occupy all memory. It occupies nothing meanwhile.
const OPERATION_WAIT: Duration = Duration::from_mins(15);
/// How long another call may wait, because a reconcile waits with it.
const CALL_WAIT: Duration = Duration::from_mins(1);
/// The same if many calls of the namespace wait, so that they do not occupy all reconciles.
const CALL_WAIT_OF_MANY: Duration = Duration::from_secs(10);
const MANY_CALLS: usize = 16;
/// A subject that is not tried again is not suspect any more after this time.
const SUSPECT_FOR: Duration = Duration::from_hours(1);

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

/// The user and the group that a process runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUser {
    pub uid: u32,
    pub gid: u32,
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
    /// Private memory at which the process is replaced once its calls have ended.
    pub soft_memory_limit: u64,
    /// Private memory that it cannot exceed.
    pub hard_memory_limit: u64,
    /// The user that it runs as. `None` means that of this process.
    pub user: Option<ProcessUser>,
    /// A process without calls ends after this time. `None` means never.
    pub idle_timeout: Option<Duration>,
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
            user: None,
            idle_timeout: None,
            check_interval: Duration::from_secs(1),
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
    #[error(
        "cannot limit the memory of a package tool: {0}; with --tool-user, the manager has to run as root with the capability SYS_RESOURCE"
    )]
    Limit(std::io::Error),
    #[error("the {0} did not answer within {1:?} of its start")]
    NotReady(Service, Duration),
    #[error("the {0} exited while starting: {1}")]
    Exited(Service, String),
    #[error("the {service} failed {count} times in a row; next start in {wait:?}; last: {last}")]
    BackingOff { service: Service, count: u32, wait: Duration, last: String },
    #[error(
        "no process of the {0} could be started within {1:?}, because others use all memory; increase --tool-processes and the memory limit"
    )]
    Busy(Service, Duration),
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
    /// The namespace whose calls the process runs. Empty if they belong to no namespace.
    owner: String,
    current: Mutex<Option<Arc<Process>>>,
    starting: tokio::sync::Mutex<Starts>,
    controls: Arc<Controls>,
    closed: CancellationToken,
    /// Calls share it, except for those that have to run alone.
    turnstile: Arc<RwLock<()>>,
    /// What calls have worked on when the process has ended while several were running, and when. The next call on it runs alone.
    suspects: Mutex<HashMap<String, Instant>>,
    /// How many calls wait for the process.
    waiting: AtomicUsize,
}

/// A call that needs a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallRequest {
    /// What it works on. If the process ends while several calls are running, the next one on the same subject runs alone.
    pub subject: String,
    /// Whether no other call may run meanwhile, except for those that only wait.
    pub alone: bool,
    /// Whether it is an operation, which waits longer.
    pub is_operation: bool,
}

/// Failed starts.
#[derive(Debug, Default)]
struct Starts {
    failures: u32,
    last_failure: String,
    not_before: Option<Instant>,
}

impl Supervisor {
    pub fn new(config: SupervisorConfig) -> Self {
        Self::sharing(config, String::new(), Arc::default(), CancellationToken::new())
    }

    /// Creates a supervisor that runs at most so many processes: those that still run calls, and the one that replaces them.
    pub fn limited(config: SupervisorConfig, processes: usize) -> Self {
        let slots = Slots::of_one_owner(processes, config.hard_memory_limit, shrink);
        let controls = Arc::new(Controls::with_slots(slots));
        Self::sharing(config, String::new(), controls, CancellationToken::new())
    }

    /// Creates a supervisor of a process of `owner` that shares limits with other supervisors.
    pub(crate) fn sharing(
        config: SupervisorConfig,
        owner: String,
        controls: Arc<Controls>,
        closed: CancellationToken,
    ) -> Self {
        Self(Arc::new(Shared {
            config,
            owner,
            current: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            controls,
            closed,
            turnstile: Arc::default(),
            suspects: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// The binary.
    pub fn path(&self) -> &Path {
        &self.0.config.path
    }

    /// Returns the running process; starts one if there is none.
    pub async fn acquire(&self) -> Result<ProcessGuard, ToolError> {
        self.acquire_for(CallRequest::default()).await
    }

    /// Returns the running process for a call; starts one if there is none.
    pub(crate) async fn acquire_for(&self, request: CallRequest) -> Result<ProcessGuard, ToolError> {
        let waiting = Waiting::new(&self.0.waiting);
        let limit = match waiting.others {
            _ if request.is_operation => OPERATION_WAIT,
            0..MANY_CALLS => CALL_WAIT,
            _ => CALL_WAIT_OF_MANY,
        };
        let acquired = tokio::time::timeout(limit, self.acquire_in_time(request));
        match self.0.closed.run_until_cancelled(acquired).await {
            Some(Ok(acquired)) => acquired,
            Some(Err(_)) => Err(ToolError::Busy(self.0.config.service, limit)),
            None => Err(ToolError::Closed),
        }
    }

    async fn acquire_in_time(&self, request: CallRequest) -> Result<ProcessGuard, ToolError> {
        let CallRequest { subject, alone, .. } = request;
        let turn = Turn::take(&self.0, &subject, alone).await;
        if let Some(begun) = self.begin() {
            return Ok(ProcessGuard::new(begun, subject, turn, self.clone()));
        }
        let mut starts = self.0.starting.lock().await;
        let begun = if let Some(begun) = self.begin() {
            begun
        } else {
            starts.check_backoff(self.0.config.service)?;
            let slot = self.0.controls.slot(&self.0.owner).await;
            self.start(&mut starts, slot).await?
        };
        Ok(ProcessGuard::new(begun, subject, turn, self.clone()))
    }

    /// Begins a call on the running process.
    fn begin(&self) -> Option<(Arc<Process>, control::Call)> {
        let process = lock(&self.0.current).clone()?;
        let control = process.control();
        if self.0.controls.is_contended() && control.age() >= TURN {
            control.retire();
        }
        let call = control.begin()?;
        Some((process, call))
    }

    /// Returns how often a process was started, and the memory of the current one.
    pub fn stats(&self) -> (u64, Option<ProcessStats>) {
        let current = lock(&self.0.current).clone();
        (self.0.controls.starts(), current.and_then(|process| process.stats()))
    }

    /// Returns how often a process has ended unexpectedly.
    pub fn crashes(&self) -> u64 {
        self.0.controls.deaths()
    }

    /// Returns whether a process that was replaced because of its memory still runs operations.
    pub fn is_draining(&self) -> bool {
        !self.0.controls.low_on_memory().is_empty()
    }

    /// Returns whether it has no process and needs none.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && self.0.controls.running_of(&self.0.owner).is_empty()
    }

    /// Ends the process at once, running operations included. The next call starts another.
    pub fn kill(&self) {
        if let Some(process) = lock(&self.0.current).take() {
            process.control().kill();
        }
    }

    /// Ends the process after its calls. The next call starts another.
    pub(crate) fn retire(&self) {
        if let Some(process) = lock(&self.0.current).take() {
            process.control().retire();
        }
    }

    /// Ends all processes at once, running operations included, and refuses to start another. Returns when they have
    /// exited, but waits a few seconds at most.
    pub async fn close(&self) {
        self.0.closed.cancel();
        self.0.controls.kill_all().await;
    }

    /// Limits how long the processes may send requests to clusters: until the Lease of this manager expires, as time since
    /// boot (`CLOCK_BOOTTIME`). Call it after each renewal; without a call there is no limit. The limit is written to the
    /// standard input of all processes before this returns, to replaced ones that still run operations too, and to a process
    /// that starts later before its first call. Does not block and needs no runtime.
    pub fn set_lease_until(&self, until: Duration) {
        self.0.controls.set_lease_until(until);
    }

    async fn start(
        &self,
        starts: &mut Starts,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Result<(Arc<Process>, control::Call), ToolError> {
        let Shared { config, owner, controls, .. } = &*self.0;
        match Process::start(config, owner, controls, slot).await {
            Ok((process, call)) => {
                let process = Arc::new(process);
                *starts = Starts::default();
                controls.count_start();
                *lock(&self.0.current) = Some(process.clone());
                tokio::spawn(watch(Arc::downgrade(&self.0), Arc::downgrade(&process)));
                Ok((process, call))
            }
            Err(error) => {
                starts.note_failure(&error.to_string());
                Err(error)
            }
        }
    }

    /// Checks a process. Returns `false` if it has ended.
    async fn check(&self, process: &Arc<Process>) -> bool {
        let (config, control) = (&self.0.config, process.control());
        let Some(stats) = process.stats() else { return false };
        let (pid, bytes) = (process.pid(), stats.private_bytes);
        if bytes >= config.hard_memory_limit {
            tracing::warn!(pid, bytes, "package tool over its hard memory limit: killed");
            control.kill_because(over_limit(config.hard_memory_limit));
            return false;
        }
        if config.idle_timeout.is_some_and(|timeout| control.end_if_idle(timeout)) {
            tracing::debug!(pid, namespace = self.0.owner, "package tool has nothing to do: ended");
            return false;
        }
        // One that is replaced already occupies its memory until its calls have ended.
        if !control.is_retired() {
            let is_large = bytes >= config.soft_memory_limit;
            control.set_low_on_memory(is_large);
            if is_large {
                self.replace(process).await;
            }
        }
        true
    }

    /// Starts the replacement first; the old process ends when its last call has ended. If there is no slot for a replacement, it
    /// ends when it has no calls.
    async fn replace(&self, old: &Arc<Process>) {
        let mut starts = self.0.starting.lock().await;
        if self.0.closed.is_cancelled() {
            return;
        }
        let Ok(slot) = self.0.controls.free_slot(&self.0.owner) else {
            old.control().end_if_idle(Duration::ZERO);
            return;
        };
        match self.start(&mut starts, slot).await {
            Ok((new, _)) => {
                tracing::info!(
                    old = old.pid(),
                    new = new.pid(),
                    "package tool over its memory limit: replaced"
                );
                requests::read(old.control()).await;
                old.control().retire();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start a replacement for the package tool; keeping the old one");
            }
        }
    }
}

impl Controls {
    /// Ends all processes at once. Returns when they have exited, but waits a few seconds at most.
    pub async fn kill_all(&self) {
        // Processes that were replaced and still run operations are among them.
        let running = self.running();
        for process in &running {
            process.kill();
        }
        let exits = join_all(running.iter().map(|process| process.exited()));
        if tokio::time::timeout(EXIT_LIMIT, exits).await.is_err() {
            let left = running.iter().filter(|process| !process.has_exited()).map(|process| process.pid());
            tracing::warn!(pids = ?left.collect::<Vec<_>>(), "processes were killed and have not exited");
        }
    }
}

/// Checks one process regularly for as long as it and its supervisor live: replaces it when it uses too much memory. Boxed,
/// because it is recursive: checking starts replacements, and starting spawns checks.
fn watch(shared: Weak<Shared>, process: Weak<Process>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        while let Some(interval) = shared.upgrade().map(|shared| shared.config.check_interval) {
            tokio::time::sleep(interval).await;
            let (Some(shared), Some(process)) = (shared.upgrade(), process.upgrade()) else { return };
            if !Supervisor(shared).check(&process).await {
                return;
            }
        }
    })
}

impl Shared {
    /// Records that the process has ended while a call on `subject` and others were running. A call without a subject is repeated by
    /// its caller.
    fn suspect(&self, subject: &str) {
        if subject.is_empty() {
            return;
        }
        let mut suspects = lock(&self.suspects);
        suspects.retain(|_, since| since.elapsed() < SUSPECT_FOR);
        suspects.insert(subject.to_owned(), Instant::now());
    }

    fn is_suspect(&self, subject: &str) -> bool {
        lock(&self.suspects).contains_key(subject)
    }

    /// Records that a call on `subject` has its turn to run alone.
    fn clear(&self, subject: &str) {
        lock(&self.suspects).remove(subject);
    }
}

/// Counts a call that waits for a process.
struct Waiting<'a> {
    waiting: &'a AtomicUsize,
    /// How many were waiting before.
    others: usize,
}

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        Self { waiting, others: waiting.fetch_add(1, Ordering::AcqRel) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Starts {
    fn note_failure(&mut self, what: &str) {
        self.failures += 1;
        what.clone_into(&mut self.last_failure);
        // The first restart is immediate.
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
