//! Commands to processes, the calls that they run, and their ends.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use chandler_telemetry::RequestCount;
use tokio::{process::ChildStdin, sync::Notify};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{requests::RequestSums, slots::Slots};

/// The processes that have not ended, retired ones included, and the limit of the Lease that they obey. Supervisors may share
/// them.
#[derive(Debug, Default)]
pub struct Controls {
    state: Mutex<State>,
    /// Limits the number of processes. `None` means no limit.
    pub slots: Option<Slots>,
    starts: AtomicU64,
    deaths: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    lease_until: Option<Duration>,
    processes: Vec<Arc<Control>>,
    /// The requests of processes that have ended.
    requests: RequestSums,
}

impl Controls {
    /// Limits the number of processes.
    pub fn with_slots(slots: Slots) -> Self {
        Self { slots: Some(slots), ..Self::default() }
    }

    /// Adds a process that has just been started. It gets the limit of the Lease before it can serve a call.
    pub fn add(&self, owner: &str, pid: u32, stdin: Option<ChildStdin>) -> ControlGuard {
        let control = Arc::new(Control {
            owner: owner.to_owned(),
            pid,
            stdin: Mutex::new(stdin),
            channel: OnceLock::new(),
            started: Instant::now(),
            calls: Mutex::new(Calls { in_flight: 0, busy: 0, retired: false, idle_since: Instant::now() }),
            idle: self.slots.as_ref().map(Slots::idle),
            low_on_memory: AtomicBool::new(false),
            kill: CancellationToken::new(),
            kill_cause: OnceLock::new(),
            end: CancellationToken::new(),
            exited: CancellationToken::new(),
            death: OnceLock::new(),
            deaths: self.deaths.clone(),
            requests: Mutex::default(),
        });
        let mut state = lock(&self.state);
        if let Some(until) = state.lease_until {
            control.send(&lease_until(until));
        }
        let (running, ended) = std::mem::take(&mut state.processes)
            .into_iter()
            .partition(|known: &Arc<Control>| !known.has_exited());
        state.processes = running;
        for control in ended as Vec<Arc<Control>> {
            state.requests.add(&control.requests());
        }
        state.processes.push(control.clone());
        ControlGuard(control)
    }

    /// Records that a process has started to serve.
    pub fn count_start(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a process was started.
    pub fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Returns how often a process has ended unexpectedly.
    pub fn deaths(&self) -> u64 {
        self.deaths.load(Ordering::Relaxed)
    }

    /// Sends the limit of the Lease to all processes. Does not block.
    pub fn set_lease_until(&self, until: Duration) {
        let mut state = lock(&self.state);
        state.lease_until = Some(until);
        for process in &state.processes {
            process.send(&lease_until(until));
        }
    }

    /// Returns the processes that have not ended.
    pub fn running(&self) -> Vec<Arc<Control>> {
        lock(&self.state).processes.iter().filter(|known| !known.has_exited()).cloned().collect()
    }

    /// Returns the processes of one owner that have not ended, oldest first.
    pub fn running_of(&self, owner: &str) -> Vec<Arc<Control>> {
        self.running().into_iter().filter(|control| control.owner == owner).collect()
    }

    /// Returns the owners of processes that use as much memory as they may and still run calls.
    pub fn low_on_memory(&self) -> BTreeSet<String> {
        let running = self.running().into_iter();
        running.filter(|control| control.is_low_on_memory()).map(|control| control.owner.clone()).collect()
    }

    /// Retires the process that has been without calls for the longest time. The caller has to end it.
    pub fn retire_longest_idle(&self) -> Option<Arc<Control>> {
        let mut running = self.running();
        running.sort_by_key(|control| control.idle_since());
        running.into_iter().find(|control| control.retire_if_idle(Duration::ZERO))
    }

    /// Returns the requests of all processes to clusters, as far as they were read from them.
    pub fn requests(&self) -> Vec<RequestCount> {
        let state = lock(&self.state);
        let mut sums = state.requests.clone();
        for control in &state.processes {
            sums.add(&control.requests());
        }
        sums.counts()
    }
}

fn lease_until(until: Duration) -> String {
    format!("lease-until {}", until.as_nanos())
}

/// The calls of a process.
#[derive(Debug)]
struct Calls {
    in_flight: usize,
    /// Those that do more than wait for objects.
    busy: usize,
    /// Whether no more calls begin.
    retired: bool,
    idle_since: Instant,
}

/// The unexpected end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Why, for users.
    pub cause: String,
    /// The calls that were running.
    pub in_flight: usize,
    /// Those of them that did more than wait for objects.
    pub busy: usize,
}

impl Death {
    /// Returns whether the process has ended because of a call that was running: no other can be the cause.
    pub fn is_caused_by(&self, is_busy: bool) -> bool {
        if is_busy { self.busy == 1 } else { self.busy == 0 && self.in_flight == 1 }
    }
}

/// Controls one process. It does not keep the process in use.
#[derive(Debug)]
pub struct Control {
    owner: String,
    pid: u32,
    stdin: Mutex<Option<ChildStdin>>,
    channel: OnceLock<Channel>,
    started: Instant,
    calls: Mutex<Calls>,
    /// Notified when the last call has ended.
    idle: Option<Arc<Notify>>,
    low_on_memory: AtomicBool,
    kill: CancellationToken,
    kill_cause: OnceLock<String>,
    end: CancellationToken,
    exited: CancellationToken,
    death: OnceLock<Option<Death>>,
    deaths: Arc<AtomicU64>,
    requests: Mutex<Vec<RequestCount>>,
}

impl Control {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sets the channel of a process that serves.
    pub fn set_channel(&self, channel: Channel) {
        let _ = self.channel.set(channel);
    }

    /// Returns the channel of a process that serves.
    pub fn channel(&self) -> Option<Channel> {
        self.channel.get().cloned()
    }

    /// Returns for how long it has been running.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Begins a call. Returns `None` if the process has exited or is retired.
    pub fn begin(self: &Arc<Self>) -> Option<Call> {
        let mut calls = lock(&self.calls);
        if calls.retired || self.has_exited() {
            return None;
        }
        calls.in_flight += 1;
        calls.busy += 1;
        Some(Call { control: self.clone(), is_busy: AtomicBool::new(true) })
    }

    /// Accepts no further calls. The process ends when the running ones have ended.
    pub fn retire(&self) {
        let mut calls = lock(&self.calls);
        calls.retired = true;
        if calls.in_flight == 0 {
            self.end.cancel();
        }
    }

    pub fn is_retired(&self) -> bool {
        lock(&self.calls).retired
    }

    /// Retires the process if it has run no call for `time`. Returns whether the caller has to end it.
    pub fn retire_if_idle(&self, time: Duration) -> bool {
        let mut calls = lock(&self.calls);
        if calls.retired || calls.in_flight > 0 || calls.idle_since.elapsed() < time {
            return false;
        }
        calls.retired = true;
        true
    }

    fn idle_since(&self) -> Instant {
        lock(&self.calls).idle_since
    }

    /// Records whether it uses as much memory as it may.
    pub fn set_low_on_memory(&self, low: bool) {
        self.low_on_memory.store(low, Ordering::Release);
    }

    pub fn is_low_on_memory(&self) -> bool {
        self.low_on_memory.load(Ordering::Acquire)
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

    /// Ends a process that is not used any more.
    pub fn end(&self) {
        self.end.cancel();
    }

    /// Completes when the process is to end by itself.
    pub async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Ends the process at once.
    pub fn kill(&self) {
        lock(&self.calls).retired = true;
        self.kill.cancel();
    }

    /// Ends the process at once because of what its calls do.
    pub fn kill_because(&self, cause: String) {
        let _ = self.kill_cause.set(cause);
        self.kill();
    }

    /// Completes when the process is to be ended at once. Returns the cause, if that is what its calls do.
    pub async fn killed(&self) -> Option<String> {
        self.kill.cancelled().await;
        self.kill_cause.get().cloned()
    }

    /// Records the end of the process. A cause means that it was not expected. Calls that it has interrupted have not ended: they
    /// wait for this record.
    pub fn set_death(&self, cause: Option<String>) {
        let calls = lock(&self.calls);
        let (in_flight, busy) = (calls.in_flight, calls.busy);
        self.deaths.fetch_add(u64::from(cause.is_some()), Ordering::Relaxed);
        let _ = self.death.set(cause.map(|cause| Death { cause, in_flight, busy }));
    }

    /// Returns the unexpected end of a process that has exited.
    pub fn death(&self) -> Option<Death> {
        self.death.get().cloned().flatten()
    }

    pub fn has_exited(&self) -> bool {
        self.exited.is_cancelled()
    }

    /// Completes when the process has exited.
    pub async fn exited(&self) {
        self.exited.cancelled().await;
    }

    /// Records the requests that the process has made to clusters so far.
    pub fn set_requests(&self, requests: Vec<RequestCount>) {
        *lock(&self.requests) = requests;
    }

    fn requests(&self) -> Vec<RequestCount> {
        lock(&self.requests).clone()
    }
}

/// A call that a process runs. It ends when this is dropped.
#[derive(Debug)]
pub struct Call {
    control: Arc<Control>,
    is_busy: AtomicBool,
}

impl Call {
    /// Records that the call only waits for objects from now on.
    pub fn only_waits(&self) {
        if self.is_busy.swap(false, Ordering::AcqRel) {
            lock(&self.control.calls).busy -= 1;
        }
    }

    /// Returns whether the call does more than wait for objects.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.only_waits();
        let mut calls = lock(&self.control.calls);
        calls.in_flight -= 1;
        if calls.in_flight > 0 {
            return;
        }
        calls.idle_since = Instant::now();
        if calls.retired {
            self.control.end.cancel();
        }
        drop(calls);
        if let Some(idle) = &self.control.idle {
            idle.notify_one();
        }
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

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_ran_alone_has_ended_the_process() {
        let rows = [
            // In flight, busy; the call is busy; it is the cause.
            ((1, 1), true, true),
            ((3, 1), true, true),
            ((3, 1), false, false),
            ((2, 2), true, false),
            ((1, 0), false, true),
            ((2, 0), false, false),
        ];
        for ((in_flight, busy), is_busy, expected) in rows {
            let death = Death { cause: String::new(), in_flight, busy };
            assert_eq!(death.is_caused_by(is_busy), expected, "{death:?}");
        }
    }

    #[test]
    fn a_process_with_calls_is_not_retired_as_idle_and_ends_with_the_last_one() {
        let controls = Controls::default();
        let guard = controls.add("team-a", 1, None);
        let control = guard.control();
        let (first, second) = (control.begin().unwrap(), control.begin().unwrap());
        assert!(!control.retire_if_idle(Duration::ZERO));
        first.only_waits();
        control.set_death(Some("killed".to_owned()));
        assert_eq!(control.death().map(|death| (death.in_flight, death.busy)), Some((2, 1)));
        control.retire();
        assert!(control.begin().is_none() && !control.end.is_cancelled());
        drop((first, second));
        assert!(control.end.is_cancelled());
        assert_eq!(controls.running_of("team-a").len(), 1);
        drop(guard);
        assert!(controls.running().is_empty());
    }
}
