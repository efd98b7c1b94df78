//! Identifies a process even if its PID is reused.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The unique identity of a process: its PID, its start time and the boot ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pid: u32,
    /// Clock ticks since boot, `/proc/PID/stat` field 22.
    started: u64,
    boot: String,
}

impl Identity {
    /// Returns the identity of a running process.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, started: running_since(&stat)?, boot: boot_id()? })
    }

    pub fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn is_running(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Sends a signal to this process. Does nothing if it has exited.
    pub fn signal(&self, signal: Signal) {
        if let Some(handle) = self.open() {
            // Fails if the process has exited in the meantime, which is no problem.
            let _ = pidfd_send_signal(&handle, signal);
        }
    }

    /// Sends `SIGTERM`, after the grace period `SIGKILL`, and waits until the process has exited.
    pub fn terminate(&self, grace_period: Duration) {
        self.signal(Signal::TERM);
        if !self.wait_exited(grace_period) {
            self.signal(Signal::KILL);
            self.wait_exited(Duration::from_secs(5));
        }
    }

    /// Waits until the process has exited. Returns `false` after the timeout.
    pub fn wait_exited(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while self.is_running() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Returns a handle that never refers to a later process with the same PID.
    fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.is_running().then_some(handle)
    }
}

/// Returns the resident memory of a process in bytes.
pub fn resident_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the start time of a process, or `None` if it is a zombie.
fn running_since(stat: &str) -> Option<u64> {
    // The command name may contain spaces and parentheses; the last parenthesis closes it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.pid, self.started, self.boot)
    }
}

/// The text is not the identity of a process.
#[derive(Debug, thiserror::Error)]
#[error("not the identity of a process")]
pub struct InvalidIdentity;

impl FromStr for Identity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split_whitespace();
        let mut next = || parts.next().ok_or(InvalidIdentity);
        let identity = Self {
            pid: next()?.parse().map_err(|_| InvalidIdentity)?,
            started: next()?.parse().map_err(|_| InvalidIdentity)?,
            boot: next()?.to_owned(),
        };
        if parts.next().is_some() {
            return Err(InvalidIdentity);
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_parsed_from_its_text() {
        let identity = Identity::current().unwrap();
        assert_eq!(identity.to_string().parse::<Identity>().unwrap(), identity);
        assert!(identity.is_running());
    }

    #[test]
    fn another_process_with_the_same_pid_has_another_identity() {
        let mut identity = Identity::current().unwrap();
        identity.started += 1;
        assert!(!identity.is_running());
        // This would terminate the test process if the identity matched.
        identity.terminate(Duration::from_millis(10));
    }

    #[test]
    fn invalid_texts_are_rejected() {
        for text in ["", "12", "12 13", "x 13 boot", "12 13 boot more"] {
            assert!(text.parse::<Identity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn command_names_may_contain_parentheses() {
        let fields = (4..22).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(running_since(&format!("7 (a) (b) S {fields} 4711 23")), Some(4711));
        assert_eq!(running_since(&format!("7 (a) Z {fields} 4711 23")), None);
    }
}
