//! Telling one process from another that later got the same number.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, beyond doubt: its number, when it started, and in which boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pid: u32,
    /// Clock ticks since boot, `/proc/PID/stat` field 22.
    started: u64,
    boot: String,
}

impl Identity {
    /// The identity of a process that runs now.
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

    /// Sends a signal to exactly this process; one that is gone already is no failure.
    pub fn signal(&self, signal: Signal) {
        if let Some(handle) = self.open() {
            // It may have ended in between, which is what a signal is for.
            let _ = pidfd_send_signal(&handle, signal);
        }
    }

    /// Asks the process to end, forces it after the grace, and returns when it is gone.
    pub fn end(&self, grace: Duration) {
        self.signal(Signal::TERM);
        if !self.wait_gone(grace) {
            self.signal(Signal::KILL);
            self.wait_gone(Duration::from_secs(5));
        }
    }

    /// Whether the process was gone within the time.
    pub fn wait_gone(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// A handle that cannot be redirected to a later process of the same number.
    fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.is_running().then_some(handle)
    }
}

/// Memory in use and held in RAM, in bytes.
pub fn resident_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The start time, unless the process is a zombie: that one runs no more.
fn running_since(stat: &str) -> Option<u64> {
    // The command name may hold spaces and parentheses; the last one closes it.
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

/// The text is not the record of a process.
#[derive(Debug, thiserror::Error)]
#[error("not the record of a process")]
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
    fn a_record_survives_writing_and_reading() {
        let identity = Identity::current().unwrap();
        assert_eq!(identity.to_string().parse::<Identity>().unwrap(), identity);
        assert!(identity.is_running());
    }

    #[test]
    fn another_process_of_the_same_number_is_not_taken_for_it() {
        let mut identity = Identity::current().unwrap();
        identity.started += 1;
        assert!(!identity.is_running());
        // Would end this test if it reached anyone.
        identity.end(Duration::from_millis(10));
    }

    #[test]
    fn nonsense_is_no_record() {
        for text in ["", "12", "12 13", "x 13 boot", "12 13 boot more"] {
            assert!(text.parse::<Identity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let fields = (4..22).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(running_since(&format!("7 (a) (b) S {fields} 4711 23")), Some(4711));
        assert_eq!(running_since(&format!("7 (a) Z {fields} 4711 23")), None);
    }
}
