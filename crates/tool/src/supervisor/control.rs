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
use tokio::{
    process::ChildStdin,
    sync::{Notify, OwnedSemaphorePermit},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{
    requests::{self, RequestSums},
    slots::Slots,
};

/// The processes that have not ended, retired ones included, and the limit of the Lease that they obey. Supervisors may share
/// them.
#[derive(Debug, Default)]
pub struct Controls {
    state: Mutex<State>,
    /// Limits the memory of all processes. `None` means no limit.
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
    /// Limits the memory of all processes.
    pub fn with_slots(slots: Slots) -> Self {
        Self { slots: Some(slots), ..Self::default() }
    }

    /// Adds a process that has just been started. It gets the limit of the Lease before it can serve a call, and occupies the
    /// memory of `slot` until it has exited.
    pub fn add(
        &self,
        owner: &str,
        pid: u32,
        stdin: Option<ChildStdin>,
        slot: Option<OwnedSemaphorePermit>,
    ) -> ControlGuard {
        let control = Arc::new(Control {
            owner: owner.to_owned(),
            pid,
            stdin: Mutex::new(stdin),
            channel: OnceLock::new(),
            started: Instant::now(),
            calls: Mutex::new(Calls::new()),
            slot: Mutex::new(slot),
            changed: self.slots.as_ref().map(Slots::changed),
            low_on_memory: AtomicBool::new(false),
            kill: CancellationToken::new(),
            kill_cause: OnceLock::new(),
            interrupted: AtomicBool::new(false),
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
        let (ended, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.processes).into_iter().partition(|known| known.has_exited());
        state.processes = running;
        for control in ended {
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
    /// Since when no more calls begin. `None` means that they do.
    retired: Option<Instant>,
    /// Whether the process may only use the memory that it had when all of its calls waited.
    parked: bool,
    /// Whether a call that has ended for its caller may still run.
    abandoned: bool,
    idle_since: Instant,
}

impl Calls {
    fn new() -> Self {
        Self {
            in_flight: 0,
            busy: 0,
            retired: None,
            parked: false,
            abandoned: false,
            idle_since: Instant::now(),
        }
    }

    fn retire(&mut self) {
        self.retired.get_or_insert_with(Instant::now);
    }
}

/// Why a process has ended unexpectedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeathCause {
    /// For users.
    pub text: String,
    /// Whether it is the memory, which all calls of the process occupy together.
    pub is_memory: bool,
}

/// The unexpected end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    pub cause: DeathCause,
    /// The calls that were running.
    pub in_flight: usize,
    /// Those of them that did more than wait for objects.
    pub busy: usize,
    /// Whether none of these calls need be the cause: one that was given up may still have run, or the process had less memory than
    /// others.
    pub is_unclear: bool,
}

impl Death {
    /// Returns whether the process has ended because of a call that was running: no other can be the cause. Those that only wait
    /// occupy memory, so that a call is not the cause before it has had its turn to run `alone`.
    pub fn is_caused_by(&self, is_busy: bool, alone: bool) -> bool {
        if self.is_unclear {
            return false;
        }
        match (is_busy, self.busy) {
            (true, 1) => alone || self.in_flight == 1 || !self.cause.is_memory,
            (false, 0) => self.in_flight == 1,
            _ => false,
        }
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
    /// The memory that it occupies.
    slot: Mutex<Option<OwnedSemaphorePermit>>,
    /// Notified when another process may get memory.
    changed: Option<Arc<Notify>>,
    low_on_memory: AtomicBool,
    kill: CancellationToken,
    kill_cause: OnceLock<DeathCause>,
    interrupted: AtomicBool,
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
        if calls.retired.is_some() || self.has_exited() {
            return None;
        }
        calls.in_flight += 1;
        calls.busy += 1;
        Some(Call { control: self.clone(), is_busy: AtomicBool::new(true) })
    }

    /// Accepts no further calls. The process ends when the running ones have ended.
    pub fn retire(&self) {
        let mut calls = lock(&self.calls);
        calls.retire();
        if calls.in_flight == 0 {
            self.end.cancel();
        }
    }

    pub fn is_retired(&self) -> bool {
        lock(&self.calls).retired.is_some()
    }

    /// Ends the process if it has run no call for `time`. Returns whether it does.
    pub fn end_if_idle(self: &Arc<Self>, time: Duration) -> bool {
        let mut calls = lock(&self.calls);
        if calls.retired.is_some() || calls.in_flight > 0 || calls.idle_since.elapsed() < time {
            return false;
        }
        calls.retire();
        drop(calls);
        // In a task of its own: the caller may be canceled.
        let control = self.clone();
        tokio::spawn(async move {
            requests::read(&control).await;
            control.end();
        });
        true
    }

    pub fn idle_since(&self) -> Instant {
        lock(&self.calls).idle_since
    }

    /// Returns whether it runs no calls and gets no more, so that it is about to exit.
    pub fn is_ending(&self) -> bool {
        let calls = lock(&self.calls);
        calls.retired.is_some() && calls.in_flight == 0
    }

    /// Returns for how long it has accepted no more calls.
    pub fn retired_for(&self) -> Option<Duration> {
        lock(&self.calls).retired.map(|since| since.elapsed())
    }

    /// Returns the memory that it occupies, in MiB.
    pub fn occupied(&self) -> usize {
        lock(&self.slot).as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// If all calls only wait, retires the process and frees the memory that they do not need. `shrink` limits the memory of a process
    /// to what it uses, and returns that in MiB. Returns whether it has retired the process.
    pub fn park(&self, shrink: impl FnOnce(u32) -> Option<usize>) -> bool {
        let mut calls = lock(&self.calls);
        if calls.parked || calls.busy > 0 || calls.in_flight == 0 || self.has_exited() {
            return false;
        }
        calls.parked = true;
        calls.retire();
        drop(calls);
        if let (Some(needed), Some(slot)) = (shrink(self.pid), lock(&self.slot).as_mut()) {
            drop(slot.split(slot.num_permits().saturating_sub(needed)));
        }
        self.notify_changed();
        true
    }

    /// Accepts no further calls, because one that has ended for its caller may still run. If the process ends, no other call is blamed.
    pub fn abandon_call(&self) {
        lock(&self.calls).abandoned = true;
        self.retire();
    }

    fn notify_changed(&self) {
        if let Some(changed) = &self.changed {
            changed.notify_waiters();
        }
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
        lock(&self.calls).retire();
        self.kill.cancel();
    }

    /// Ends the process at once because of what its calls do.
    pub fn kill_because(&self, cause: DeathCause) {
        let _ = self.kill_cause.set(cause);
        self.kill();
    }

    /// Ends the process at once, because others wait for its memory. Its calls have to be repeated.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.kill();
    }

    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Completes when the process is to be ended at once. Returns the cause, if that is what its calls do.
    pub async fn killed(&self) -> Option<DeathCause> {
        self.kill.cancelled().await;
        self.kill_cause.get().cloned()
    }

    /// Records the end of the process. A cause means that it was not expected. Calls that it has interrupted have not ended: they
    /// wait for this record.
    pub fn set_death(&self, cause: Option<DeathCause>) {
        let calls = lock(&self.calls);
        let (in_flight, busy, is_unclear) = (calls.in_flight, calls.busy, calls.abandoned || calls.parked);
        self.deaths.fetch_add(u64::from(cause.is_some()), Ordering::Relaxed);
        let _ = self.death.set(cause.map(|cause| Death { cause, in_flight, busy, is_unclear }));
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
    /// Records whether the call does more than wait for objects from now on.
    pub fn set_busy(&self, busy: bool) {
        let mut calls = lock(&self.control.calls);
        if self.is_busy.swap(busy, Ordering::AcqRel) == busy {
            return;
        }
        calls.busy = if busy { calls.busy + 1 } else { calls.busy.saturating_sub(1) };
        drop(calls);
        self.control.notify_changed();
    }

    /// Returns whether the call does more than wait for objects.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.set_busy(false);
        let mut calls = lock(&self.control.calls);
        calls.in_flight -= 1;
        if calls.in_flight > 0 {
            return;
        }
        calls.idle_since = Instant::now();
        if calls.retired.is_some() {
            self.control.end.cancel();
        }
        drop(calls);
        self.control.notify_changed();
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
        lock(&self.0.slot).take();
        self.0.notify_changed();
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
