//! Limits the number of processes: their owners take turns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{control::Controls, requests};

/// While others wait for a process, a process takes no more calls after this time. It ends when its calls have ended.
pub const TURN: Duration = Duration::from_secs(20);

/// The slots of processes. Waiting owners get one in the order of their arrival.
#[derive(Debug)]
pub struct Slots {
    semaphore: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Notified when a process has no more calls.
    idle: Arc<Notify>,
    /// How many processes an owner may have. The second one replaces the first one, which still runs calls.
    per_owner: usize,
}

impl Slots {
    /// An owner gets at most half of `number`, so that it cannot occupy all slots with calls that take long.
    pub fn new(number: usize) -> Self {
        Self {
            semaphore: Arc::new(Semaphore::new(number)),
            waiting: AtomicUsize::new(0),
            idle: Arc::default(),
            per_owner: (number / 2).clamp(1, 2),
        }
    }

    pub fn idle(&self) -> Arc<Notify> {
        self.idle.clone()
    }
}

/// Counts an owner that waits for a slot.
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

    /// Waits for the slot of another process of `owner`. Processes of others that run no calls are ended for it. Returns `None`
    /// if the number of processes is not limited.
    pub async fn slot(&self, owner: &str) -> Option<OwnedSemaphorePermit> {
        let slots = self.slots.as_ref()?;
        while let [oldest, others @ ..] = self.over_share(owner, slots).as_slice() {
            for idle in others.iter().chain([oldest]).filter(|one| one.retire_if_idle(Duration::ZERO)) {
                requests::read(idle).await;
                idle.end();
            }
            oldest.exited().await;
        }
        if let Ok(permit) = slots.semaphore.clone().try_acquire_owned() {
            return Some(permit);
        }
        let _waiting = Waiting::new(&slots.waiting);
        let mut acquired = std::pin::pin!(slots.semaphore.clone().acquire_owned());
        loop {
            if let Some(idle) = self.retire_longest_idle() {
                requests::read(&idle).await;
                idle.end();
            }
            tokio::select! {
                biased;
                permit = &mut acquired => return permit.ok(),
                () = slots.idle.notified() => {}
            }
        }
    }

    /// Returns a slot if one is free now and `owner` may have another process. `Err` means that it may not.
    pub fn free_slot(&self, owner: &str) -> Result<Option<OwnedSemaphorePermit>, ()> {
        let Some(slots) = &self.slots else { return Ok(None) };
        if !self.over_share(owner, slots).is_empty() {
            return Err(());
        }
        slots.semaphore.clone().try_acquire_owned().map(Some).map_err(|_| ())
    }

    /// Returns the processes of an owner that has as many as it may have, oldest first.
    fn over_share(&self, owner: &str, slots: &Slots) -> Vec<Arc<super::control::Control>> {
        let running = self.running_of(owner);
        if running.len() < slots.per_owner { Vec::new() } else { running }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn owners_take_turns() {
        let controls = Controls::with_slots(Slots::new(2));
        let a = (controls.slot("a").await, controls.add("a", 1, None));
        let b = (controls.slot("b").await, controls.add("b", 2, None));
        let (call_a, call_b) = (a.1.control().begin(), b.1.control().begin());
        let (mut c, mut d) = (Box::pin(controls.slot("c")), Box::pin(controls.slot("d")));
        assert!((&mut c).now_or_never().is_none(), "both slots are occupied");
        assert!((&mut d).now_or_never().is_none() && controls.is_contended());
        drop(call_b);
        assert!((&mut c).now_or_never().is_none());
        assert!(b.1.control().is_retired(), "the process without calls is ended");
        assert!(!a.1.control().is_retired());
        drop(b);
        assert!((&mut d).now_or_never().is_none(), "it came later");
        assert!(c.await.is_some());
        drop((call_a, a));
        assert!(d.await.is_some());
        assert!(!controls.is_contended());
    }

    #[tokio::test]
    async fn an_owner_cannot_occupy_all_slots() {
        let controls = Controls::with_slots(Slots::new(4));
        let first = (controls.slot("a").await, controls.add("a", 1, None));
        let second = (controls.free_slot("a").unwrap(), controls.add("a", 2, None));
        assert!(controls.free_slot("a").is_err());
        assert!(controls.slot("a").now_or_never().is_none(), "two of its processes run");
        assert!(controls.slot("b").now_or_never().flatten().is_some());
        drop(first);
        assert!(controls.slot("a").now_or_never().flatten().is_some());
        drop(second);
        assert!(Controls::default().slot("a").await.is_none(), "there is no limit");
    }
}
