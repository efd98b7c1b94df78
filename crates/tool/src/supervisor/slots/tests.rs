use futures::FutureExt as _;

use super::*;
use crate::supervisor::control::ControlGuard;

const MIB: u64 = 1 << 20;
/// The share of a process in these tests, in MiB.
const SHARE: usize = 400;

/// Processes with a share of 400 MiB, of which those whose calls only wait need 100 MiB.
fn controls(processes: usize) -> Controls {
    let slots = Slots::new(processes, 400 * MIB, |_, share| Some(share / 4));
    Controls::with_slots(Slots { kept: Duration::ZERO, ..slots })
}

/// Starts a process if its memory is free.
fn start(controls: &Controls, owner: &str) -> Option<ControlGuard> {
    let slot = controls.slot(owner).now_or_never()?;
    Some(controls.add(owner, 0, None, slot))
}

#[tokio::test]
async fn owners_take_turns() {
    let controls = controls(2);
    let (a, b) = (start(&controls, "a").unwrap(), start(&controls, "b").unwrap());
    let (call_a, call_b) = (a.control().begin(), b.control().begin());
    let (mut c, mut d) = (Box::pin(controls.slot("c")), Box::pin(controls.slot("d")));
    assert!((&mut c).now_or_never().is_none(), "both are busy");
    assert!((&mut d).now_or_never().is_none() && controls.is_contended());
    drop(call_b);
    assert!((&mut c).now_or_never().is_none());
    assert!(b.control().is_retired(), "the process without calls ends");
    assert!(!a.control().is_retired());
    drop(b);
    assert!((&mut d).now_or_never().is_none(), "it came later");
    assert!(c.await.is_some());
    drop((call_a, a));
    assert!(d.await.is_some());
    assert!(!controls.is_contended());
}

#[tokio::test]
async fn an_owner_cannot_occupy_all_memory() {
    let controls = controls(4);
    let first = start(&controls, "a").unwrap();
    let second = controls.add("a", 0, None, controls.free_slot("a").unwrap());
    let calls = (first.control().begin(), second.control().begin());
    assert!(controls.free_slot("a").is_err());
    assert!(start(&controls, "a").is_none(), "two of its processes run");
    assert!(start(&controls, "b").is_some());
    drop((calls, first));
    assert!(start(&controls, "a").is_some());
    assert!(Controls::default().slot("a").await.is_none(), "there is no limit");
}

#[tokio::test]
async fn operations_that_only_wait_do_not_keep_other_owners_out() {
    let controls = controls(2);
    let mut waiting = Vec::new();
    for owner in ["a", "b", "c", "d", "e"] {
        let process = tokio::time::timeout(TICK * 5, controls.slot(owner)).await.unwrap();
        let process = controls.add(owner, 0, None, process);
        let call = process.control().begin().unwrap();
        call.set_busy(false);
        waiting.push((process, call));
    }
    let parked = waiting.iter().filter(|(process, _)| process.control().is_retired()).count();
    assert!(parked >= 3, "they keep the memory that they use: {parked}");
    let occupied: usize = waiting.iter().map(|(process, _)| process.control().occupied()).sum();
    assert!(occupied <= 2 * SHARE, "{occupied}");
    assert!(waiting.iter().all(|(process, _)| !process.control().is_interrupted()));
}

#[tokio::test]
async fn if_all_memory_is_used_the_process_without_new_calls_is_interrupted() {
    let slots = Slots::new(2, 400 * MIB, |_, share| Some(share));
    let controls = Controls::with_slots(Slots { interrupted_after: Duration::ZERO, ..slots });
    let a = start(&controls, "a").unwrap();
    let b = start(&controls, "b").unwrap();
    let calls = (a.control().begin().unwrap(), b.control().begin().unwrap());
    calls.0.set_busy(false);
    let mut c = Box::pin(controls.slot("c"));
    // The first look parks it, the second one interrupts it.
    let waited = tokio::time::timeout(TICK * 2, &mut c).await;
    assert!(waited.is_err() && a.control().is_interrupted(), "it only waits");
    assert!(!b.control().is_interrupted(), "it works");
    a.control().set_death(None);
    assert_eq!(a.control().death(), None, "its calls are not blamed");
    drop((calls.0, a));
    assert!(c.await.is_some());
}

#[tokio::test]
async fn a_waiter_that_is_canceled_loses_no_memory() {
    let controls = controls(2);
    let (a, b) = (start(&controls, "a").unwrap(), start(&controls, "b").unwrap());
    let call = a.control().begin();
    assert!(controls.slot("c").now_or_never().is_none());
    // The waiter is gone, and the process that it has chosen ends anyway.
    b.control().ended().await;
    assert!(!controls.is_contended());
    drop((call, a, b));
    assert!(start(&controls, "c").is_some() && start(&controls, "d").is_some());
}

#[tokio::test]
async fn an_owner_gets_another_process_when_any_of_its_own_exits() {
    let controls = controls(4);
    let (first, second) = (start(&controls, "a").unwrap(), start(&controls, "a").unwrap());
    let calls = (first.control().begin(), second.control().begin());
    first.control().retire();
    second.control().retire();
    let mut third = Box::pin(controls.slot("a"));
    assert!((&mut third).now_or_never().is_none());
    drop((calls.1, second));
    assert!(third.await.is_some(), "the older one still works");
}

#[tokio::test]
async fn tools_of_an_owner_take_turns() {
    let controls = controls(2);
    let helm = start(&controls, "a").unwrap();
    let call = helm.control().begin();
    let mut other = Box::pin(controls.slot("a"));
    assert!((&mut other).now_or_never().is_none());
    assert!(helm.control().is_retired(), "it gets no more calls");
    drop((call, helm));
    assert!(other.await.is_some());
}

#[tokio::test]
async fn no_more_processes_end_than_are_needed() {
    let controls = controls(3);
    let [a, b, _c] = ["a", "b", "c"].map(|owner| start(&controls, owner).unwrap());
    let mut d = Box::pin(controls.slot("d"));
    for _ in 0..3 {
        assert!((&mut d).now_or_never().is_none());
        controls.slots.as_ref().unwrap().changed.notify_waiters();
    }
    assert!(a.control().is_retired() && !b.control().is_retired());
}

#[tokio::test]
async fn a_process_is_kept_for_a_moment_after_its_last_call() {
    let controls = Controls::with_slots(Slots::new(1, 400 * MIB, |_, _| None));
    let a = start(&controls, "a").unwrap();
    drop(a.control().begin());
    let mut b = Box::pin(controls.slot("b"));
    assert!((&mut b).now_or_never().is_none() && !a.control().is_retired());
    assert!(tokio::time::timeout(KEPT + TICK * 2, b).await.is_err());
    assert!(a.control().is_retired());
}

#[tokio::test]
async fn an_owner_whose_operation_waits_gets_another_process() {
    let controls = controls(2);
    let first = start(&controls, "a").unwrap();
    let call = first.control().begin().unwrap();
    call.set_busy(false);
    let slot = tokio::time::timeout(TICK * 2, controls.slot("a")).await.unwrap();
    assert!(slot.is_some() && first.control().is_retired(), "the first one is parked");
    drop((call, first));
}
