//! Child processes that never outlive their owner: tied by the kernel, and recorded so that a later run can make sure.

mod identity;
mod tether;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::watch;

pub use self::identity::{Identity, InvalidIdentity, resident_memory};

/// How long a process may take to end by itself.
pub const GRACE: Duration = Duration::from_secs(10);

/// Why a process could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`setpriv` was not found: install util-linux, it ties the sandbox's processes to their owner")]
    TetherMissing,
    #[error("{name} did not start: {source}")]
    Spawn { name: String, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Record { path: PathBuf, source: io::Error },
    #[error("{name} ended ({status}); its log is {}, the end of which is:\n{tail}", log.display())]
    EndedEarly { name: String, status: ExitStatus, log: PathBuf, tail: String },
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Names the log and the record.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    /// The whole environment besides `PATH`.
    pub env: Vec<(String, String)>,
    /// The working directory; holds `logs/` and `run/`.
    pub home: PathBuf,
}

/// A running process that ends with its owner.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: u32,
    handle: OwnedFd,
    exit: watch::Receiver<Option<ExitStatus>>,
    log: PathBuf,
    record: PathBuf,
}

impl Child {
    pub fn spawn(spec: &Spec) -> Result<Self, Error> {
        let log = log_path(&spec.home, &spec.name);
        let record = record_folder(&spec.home).join(&spec.name);
        let output = open_log(&log)?;
        create_folder(record.parent())?;

        let mut command = tether::tethered(&spec.program);
        command
            .args(&spec.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(spec.env.iter().map(|(key, value)| (key, value)))
            .current_dir(&spec.home)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(|source| spec.not_started(source))?)
            .stderr(output)
            // A Ctrl-C on the terminal is for the owner, which stops its children in order.
            .process_group(0);
        let process = tether::spawn(command).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::TetherMissing,
            _ => spec.not_started(source),
        })?;
        let pid = process.id();
        let handle = open_handle(pid).map_err(|source| spec.not_started(source))?;
        if let Some(identity) = Identity::of(pid) {
            fs::write(&record, identity.to_string())
                .map_err(|source| Error::Record { path: record.clone(), source })?;
        }
        let exit = reap(process).map_err(|source| spec.not_started(source))?;
        Ok(Self { name: spec.name.clone(), pid, handle, exit, log, record })
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

    pub fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// An error that quotes the log if the process has ended.
    pub fn check(&self) -> Result<(), Error> {
        match *self.exit.borrow() {
            None => Ok(()),
            Some(status) => Err(Error::EndedEarly {
                name: self.name.clone(),
                status,
                log: self.log.clone(),
                tail: last_lines(&self.log, 12),
            }),
        }
    }

    /// Asks the process to end, forces it after the grace, and returns when it is gone.
    pub async fn stop(mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace, self.ended()).await.is_err() {
            self.signal(Signal::KILL);
            self.ended().await;
        }
        // A record of a process that is gone is harmless.
        let _ = fs::remove_file(&self.record);
    }

    /// Ends the process at once.
    pub async fn kill(mut self) {
        self.signal(Signal::KILL);
        self.ended().await;
        let _ = fs::remove_file(&self.record);
    }

    async fn ended(&mut self) {
        // The sender only goes away after it has told the exit.
        let _ = self.exit.wait_for(Option::is_some).await;
    }

    fn signal(&self, signal: Signal) {
        // It may have ended in between, which is what a signal is for.
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
    fn not_started(&self, source: io::Error) -> Error {
        Error::Spawn { name: self.name.clone(), source }
    }
}

/// Ends what a killed owner may have left in this folder; says how many it were.
pub fn end_orphans(home: &Path) -> usize {
    let Ok(entries) = fs::read_dir(record_folder(home)) else {
        return 0;
    };
    let mut ended = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        let orphan = fs::read_to_string(&path)
            .ok()
            .and_then(|text| text.parse::<Identity>().ok())
            .filter(Identity::is_running);
        if let Some(orphan) = orphan {
            tracing::info!(pid = orphan.pid(), record = %path.display(), "ending a process left by an earlier run");
            orphan.end(Duration::from_secs(2));
            ended += 1;
        }
        // A record that stays is looked at again next time.
        let _ = fs::remove_file(&path);
    }
    ended
}

/// The last lines of a log, for error messages.
pub fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn log_path(home: &Path, name: &str) -> PathBuf {
    home.join("logs").join(format!("{name}.log"))
}

fn record_folder(home: &Path) -> PathBuf {
    home.join("run")
}

fn open_log(path: &Path) -> Result<File, Error> {
    create_folder(path.parent())?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| Error::Record { path: path.to_owned(), source })
}

fn create_folder(path: Option<&Path>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    fs::create_dir_all(path).map_err(|source| Error::Record { path: path.to_owned(), source })
}

fn open_handle(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the process has no valid number"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Collects the exit status in a thread of its own, so that no async runtime has to outlive the child.
fn reap(mut process: std::process::Child) -> io::Result<watch::Receiver<Option<ExitStatus>>> {
    let (told, exit) = watch::channel(None);
    thread::Builder::new().name("sandbox-reaper".to_owned()).stack_size(64 << 10).spawn(move || {
        if let Ok(status) = process.wait() {
            told.send_replace(Some(status));
        }
    })?;
    Ok(exit)
}
