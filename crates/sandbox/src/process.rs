//! Child processes that end with their owner. The kernel kills them with the owner, and a PID file of each allows a
//! later run to find those that are left.

mod identity;
mod parent_death;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::TcpStream;
use tokio::sync::watch;

pub use self::identity::{Identity, InvalidIdentity, resident_memory};

/// How long a process may take to exit after `SIGTERM`.
pub const GRACE_PERIOD: Duration = Duration::from_secs(10);

/// An error while running a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "`setpriv` was not found: install util-linux; the sandbox uses it to stop its processes when their parent ends"
    )]
    SetprivMissing,
    #[error("cannot start {name}: {source}")]
    Spawn { name: String, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{name} exited ({status}); its log is {}, which ends with:\n{tail}", log.display())]
    Exited { name: String, status: ExitStatus, log: PathBuf, tail: String },
}

/// The variables that child processes inherit: the path, and the settings of Go's garbage collector, with which processes take less
/// CPU time and more memory.
const INHERITED: [&str; 3] = ["PATH", "GOGC", "GOMEMLIMIT"];

/// The program, arguments and environment of a child process.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The name of the log file and the PID file.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    /// The environment in addition to [`INHERITED`].
    pub env: Vec<(String, String)>,
    /// The working directory, with the subfolders `logs` and `run`.
    pub home: PathBuf,
}

/// A running process that ends when this process ends.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: u32,
    handle: OwnedFd,
    exit: watch::Receiver<Option<ExitStatus>>,
    log: PathBuf,
    log_start: u64,
    pid_file: PathBuf,
}

impl Child {
    pub fn spawn(spec: &Spec) -> Result<Self, Error> {
        let log = log_path(&spec.home, &spec.name);
        let pid_file = pid_folder(&spec.home).join(&spec.name);
        let output = open_log(&log)?;
        let log_start = output.metadata().map_or(0, |file| file.len());
        create_folder(pid_file.parent())?;

        let mut command = parent_death::command(&spec.program);
        command
            .args(&spec.args)
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(spec.env.iter().map(|(key, value)| (key, value)))
            .current_dir(&spec.home)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(|source| spec.not_started(source))?)
            .stderr(output)
            // Ctrl-C in the terminal reaches only the owner, which stops its children in order.
            .process_group(0);
        let process = parent_death::spawn(command).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::SetprivMissing,
            _ => spec.not_started(source),
        })?;
        let pid = process.id();
        let handle = open_handle(pid).map_err(|source| spec.not_started(source))?;
        if let Some(identity) = Identity::of(pid) {
            fs::write(&pid_file, identity.to_string())
                .map_err(|source| Error::Write { path: pid_file.clone(), source })?;
        }
        let exit = reap(process).map_err(|source| spec.not_started(source))?;
        Ok(Self { name: spec.name.clone(), pid, handle, exit, log, log_start, pid_file })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the size of the log before the process started: several processes may write to the same file.
    pub fn log_start(&self) -> u64 {
        self.log_start
    }

    pub fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// Returns an error with the end of the log if the process has exited.
    pub fn check(&self) -> Result<(), Error> {
        match *self.exit.borrow() {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                name: self.name.clone(),
                status,
                log: self.log.clone(),
                tail: last_lines(&self.log, 12),
            }),
        }
    }

    /// Waits until the process accepts connections on a loopback port. Returns `false` if it does not within the limit.
    pub async fn accepts_connections(&self, port: u16, limit: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + limit;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            self.check()?;
            if Instant::now() > deadline {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(true)
    }

    /// Sends `SIGTERM`, after the grace period `SIGKILL`, and waits until the process has exited.
    pub async fn stop(mut self, grace_period: Duration) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace_period, self.wait()).await.is_err() {
            self.signal(Signal::KILL);
            self.wait().await;
        }
        // The PID file of a process that has exited is harmless.
        let _ = fs::remove_file(&self.pid_file);
    }

    /// Sends `SIGKILL` and waits until the process has exited.
    pub async fn kill(mut self) {
        self.signal(Signal::KILL);
        self.wait().await;
        let _ = fs::remove_file(&self.pid_file);
    }

    async fn wait(&mut self) {
        // The sender is dropped only after it has sent the exit status.
        let _ = self.exit.wait_for(Option::is_some).await;
    }

    fn signal(&self, signal: Signal) {
        // Fails if the process has exited already, which is no problem.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal(Signal::KILL);
        }
    }
}

impl Spec {
    /// Returns the same process inside a network namespace of `ip netns`, which replaces itself by the program.
    #[must_use]
    pub fn in_network_namespace(self, namespace: &str) -> Self {
        let program = self.program.to_string_lossy().into_owned();
        let mut args = ["netns", "exec", namespace].map(str::to_owned).to_vec();
        args.push(program);
        args.extend(self.args);
        Self { program: PathBuf::from("ip"), args, ..self }
    }

    fn not_started(&self, source: io::Error) -> Error {
        Error::Spawn { name: self.name.clone(), source }
    }
}

/// Terminates processes in this folder that a killed owner has left running. Returns their number.
pub fn terminate_orphans(home: &Path) -> usize {
    let Ok(entries) = fs::read_dir(pid_folder(home)) else {
        return 0;
    };
    let mut terminated = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        let orphan = fs::read_to_string(&path)
            .ok()
            .and_then(|text| text.parse::<Identity>().ok())
            .filter(Identity::is_running);
        if let Some(orphan) = orphan {
            tracing::info!(pid = orphan.pid(), pid_file = %path.display(), "terminating a process of an earlier run");
            orphan.terminate(Duration::from_secs(2));
            terminated += 1;
        }
        // The next run reads a PID file that is left.
        let _ = fs::remove_file(&path);
    }
    terminated
}

/// Returns the PIDs of the processes that a process has started and that still exist. Returns none if it has exited.
pub fn child_processes(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| parse_pids(&list)).collect()
}

fn parse_pids(list: &str) -> Vec<u32> {
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the last lines of a log, for error messages.
pub fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn log_path(home: &Path, name: &str) -> PathBuf {
    home.join("logs").join(format!("{name}.log"))
}

fn pid_folder(home: &Path) -> PathBuf {
    home.join("run")
}

fn open_log(path: &Path) -> Result<File, Error> {
    create_folder(path.parent())?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn create_folder(path: Option<&Path>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    fs::create_dir_all(path).map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn open_handle(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the PID is not valid"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits for the exit status in a separate thread, so that it does not depend on an async runtime.
fn reap(mut process: std::process::Child) -> io::Result<watch::Receiver<Option<ExitStatus>>> {
    let (sender, exit) = watch::channel(None);
    thread::Builder::new().name("sandbox-reaper".to_owned()).stack_size(64 << 10).spawn(move || {
        if let Ok(status) = process.wait() {
            sender.send_replace(Some(status));
        }
    })?;
    Ok(exit)
}
