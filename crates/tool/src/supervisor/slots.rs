//! Limits the memory of all processes, and with it their number: their owners take turns.
//!
//! A process occupies its share of the memory until it exits. While another owner waits for a share, processes without calls end;
//! those that are older than a turn get no more calls; those whose calls only wait for objects are parked, which means that they keep
//! only the memory that they use. A process that has had no new calls for long is interrupted, and its operations are repeated.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::control::{Control, Controls};

/// While others wait for a process, a process takes no more calls after this time. It ends when its calls have ended.
pub const TURN: Duration = Duration::from_secs(20);
/// While others wait for a process, one that gets no more calls is interrupted after this time.
pub const INTERRUPTED_AFTER: Duration = Duration::from_mins(10);
/// A process is not ended for others between the calls of one reconcile.
const KEPT: Duration = Duration::from_secs(1);
/// How often those that wait look for processes that have become old enough.
const TICK: Duration = Duration::from_secs(1);

/// Limits the memory of a process to what it uses. Gets the process and its share, and returns what it may use, all in MiB. `None` means
/// that the process keeps its share.
pub type Shrink = fn(u32, usize) -> Option<usize>;

/// The memory of processes. Waiting owners get their shares in the order of their arrival.
#[derive(Debug)]
pub struct Slots {
    /// The memory in MiB.
    semaphore: Arc<Semaphore>,
    /// The share of a process, in MiB.
    share: usize,
    /// What all processes of an owner may occupy, in MiB.
    most: usize,
    kept: Duration,
    interrupted_after: Duration,
    shrink: Shrink,
    waiting: AtomicUsize,
    /// Notified when a process has ended, has no more calls, or its calls only wait.
    changed: Arc<Notify>,
}

impl Slots {
    /// Memory for so many processes, of which an owner gets at most half, so that it cannot occupy all with calls that take long. It
    /// always gets enough for a process besides a parked one. `share` is in bytes.
    pub fn new(processes: usize, share: u64, shrink: Shrink) -> Self {
        let share = usize::try_from(share >> 20).unwrap_or(usize::MAX).clamp(1, usize::from(u16::MAX));
        let total = processes.saturating_mul(share).min(Semaphore::MAX_PERMITS);
        Self {
            semaphore: Arc::new(Semaphore::new(total)),
            share,
            most: (total / 2).max(share + share / 2).min(total.max(share)),
            kept: KEPT,
            interrupted_after: INTERRUPTED_AFTER,
            shrink,
            waiting: AtomicUsize::new(0),
            changed: Arc::default(),
        }
    }

    /// Memory for so many processes of one owner.
    pub fn of_one_owner(processes: usize, share: u64, shrink: Shrink) -> Self {
        let slots = Self::new(processes, share, shrink);
        Self { most: slots.share.saturating_mul(processes), ..slots }
    }

    pub fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    fn permits(&self) -> u32 {
        u32::try_from(self.share).unwrap_or(u32::MAX)
    }

    fn park(&self, process: &Control) -> bool {
        process.park(|pid| (self.shrink)(pid, self.share))
    }

    /// Interrupts the process that has had no new calls for the longest time, if that is long enough.
    fn interrupt(&self, running: &[Arc<Control>]) {
        let oldest = running.iter().max_by_key(|one| one.retired_for());
        let is_due = |one: &&Arc<Control>| {
            !one.is_interrupted() && one.retired_for().is_some_and(|time| time >= self.interrupted_after)
        };
        if let Some(process) = oldest.filter(is_due) {
            tracing::info!(
                pid = process.pid(),
                "package tool is interrupted, because other calls wait for its memory"
            );
            process.interrupt();
        }
    }
}

/// Counts an owner that waits for memory.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Controls {
    /// Returns whether an owner waits for a process.
    pub fn is_contended(&self) -> bool {
        self.slots.as_ref().is_some_and(|slots| slots.waiting.load(Ordering::Acquire) > 0)
    }

    /// Waits for the memory of another process of `owner`. Returns `None` if it is not limited. Nothing is lost if the caller is
    /// canceled.
    pub async fn slot(&self, owner: &str) -> Option<OwnedSemaphorePermit> {
        let slots = self.slots.as_ref()?;
        loop {
            let changed = slots.changed.notified();
            if self.has_share(owner, slots) {
                break;
            }
            self.make_room_in_share(owner, slots);
            let _ = tokio::time::timeout(TICK, changed).await;
        }
        if let Ok(permit) = slots.semaphore.clone().try_acquire_many_owned(slots.permits()) {
            return Some(permit);
        }
        let _waiting = Waiting::new(&slots.waiting);
        let mut acquired = std::pin::pin!(slots.semaphore.clone().acquire_many_owned(slots.permits()));
        loop {
            let changed = slots.changed.notified();
            self.make_room(slots);
            tokio::select! {
                biased;
                permit = &mut acquired => return permit.ok(),
                _ = tokio::time::timeout(TICK, changed) => {}
            }
        }
    }

    /// Returns memory for a process if it is free now and `owner` may have another process. `Err` means that it may not.
    pub fn free_slot(&self, owner: &str) -> Result<Option<OwnedSemaphorePermit>, ()> {
        let Some(slots) = &self.slots else { return Ok(None) };
        if !self.has_share(owner, slots) {
            return Err(());
        }
        slots.semaphore.clone().try_acquire_many_owned(slots.permits()).map(Some).map_err(|_| ())
    }

    /// Returns whether an owner may have another process.
    fn has_share(&self, owner: &str, slots: &Slots) -> bool {
        let occupied: usize = self.running_of(owner).iter().map(|one| one.occupied()).sum();
        occupied.saturating_add(slots.share) <= slots.most
    }

    /// Lets processes of an owner end that has as many as it may have.
    fn make_room_in_share(&self, owner: &str, slots: &Slots) {
        let running = self.running_of(owner);
        if running.iter().any(|one| one.is_ending())
            || running.iter().any(|one| one.end_if_idle(Duration::ZERO) || slots.park(one))
        {
            return;
        }
        // The caller has no process that takes calls, so it is that of another tool.
        match running.iter().find(|one| !one.is_retired()) {
            Some(other) if running.iter().all(|one| one.retired_for().is_none()) => other.retire(),
            _ => slots.interrupt(&running),
        }
    }

    /// Lets one process end or free memory for those that wait, but no more processes than they need.
    fn make_room(&self, slots: &Slots) {
        let mut running = self.running();
        let ending = running.iter().filter(|one| one.is_ending()).count();
        if ending >= slots.waiting.load(Ordering::Acquire) {
            return;
        }
        running.sort_by_key(|one| one.idle_since());
        if !running.iter().any(|one| one.end_if_idle(slots.kept) || slots.park(one)) && ending == 0 {
            slots.interrupt(&running);
        }
    }
}

#[cfg(test)]
mod tests;
