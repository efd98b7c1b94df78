//! Which namespace gets the next of a limited number of slots.

use std::collections::BTreeMap;

/// After so many slots were given, what namespaces have used counts half: a few seconds of a busy namespace.
const HALVED_AFTER: u32 = 256;
/// Every so many slots, the one that came first gets a slot.
const BY_ARRIVAL: u32 = 4;

/// Which namespace goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that occupies the fewest slots, for work of different lengths.
    FewestRunning,
    /// The one that has got the fewest slots of late, for short work of similar length: what one namespace does all the time does
    /// not delay what another one does now and then. Every fourth slot is given in the order of arrival, so that a busy namespace
    /// does not wait for long either.
    LeastUsed,
}

/// Slots for concurrent work, such as fetches, that namespaces share. A namespace cannot occupy all of them, so that the others
/// go on while its repositories hang.
#[derive(Clone, Debug)]
pub struct NamespaceShares {
    slots: usize,
    per_namespace: usize,
    order: Order,
    /// Occupied slots by namespace.
    running: BTreeMap<String, usize>,
    /// How many slots namespaces have got of late, if the order depends on it.
    used: BTreeMap<String, u32>,
    /// How many slots were given since that was halved.
    given: u32,
}

impl NamespaceShares {
    /// Creates slots, of which a namespace gets at most three quarters, rounded up. It can get all of fewer than four.
    pub fn new(slots: usize, order: Order) -> Self {
        let (running, used) = (BTreeMap::new(), BTreeMap::new());
        Self { slots, per_namespace: slots - slots / 4, order, running, used, given: 0 }
    }

    /// Returns which of the waiting namespaces, in the order of their arrival, gets the next slot: the one that goes first by the
    /// order, and of several the one that came first. `None` means that none can start.
    pub fn next<'a>(&self, waiting: impl IntoIterator<Item = &'a str>) -> Option<usize> {
        if !self.has_free_slot() {
            return None;
        }
        let may_start = |namespace: &str| self.running_of(namespace) < self.per_namespace;
        let mut waiting = waiting.into_iter().enumerate().filter(|(_, namespace)| may_start(namespace));
        let next = match self.order {
            Order::LeastUsed if self.given % BY_ARRIVAL == BY_ARRIVAL - 1 => waiting.next(),
            Order::FewestRunning => waiting.min_by_key(|(_, namespace)| self.running_of(namespace)),
            Order::LeastUsed => waiting.min_by_key(|(_, namespace)| self.used.get(*namespace)),
        };
        next.map(|(at, _)| at)
    }

    /// Returns whether a slot is free.
    pub fn has_free_slot(&self) -> bool {
        self.running.values().sum::<usize>() < self.slots
    }

    fn running_of(&self, namespace: &str) -> usize {
        self.running.get(namespace).copied().unwrap_or_default()
    }

    /// Records that a namespace occupies one slot more.
    pub fn start(&mut self, namespace: &str) {
        *self.running.entry(namespace.to_owned()).or_default() += 1;
        if self.order == Order::LeastUsed {
            *self.used.entry(namespace.to_owned()).or_default() += 1;
            self.given += 1;
            if self.given == HALVED_AFTER {
                self.given = 0;
                self.used.retain(|_, used| {
                    *used /= 2;
                    *used > 0
                });
            }
        }
    }

    /// Records that a namespace has released a slot.
    pub fn end(&mut self, namespace: &str) {
        if let Some(running) = self.running.get_mut(namespace) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_cannot_occupy_all_slots_and_those_with_few_go_first() {
        let mut share = NamespaceShares::new(4, Order::FewestRunning);
        assert_eq!(share.next([]), None);
        for _ in 0..3 {
            assert_eq!(share.next(["a", "a"]), Some(0));
            share.start("a");
        }
        assert_eq!(share.next(["a", "a"]), None, "one slot is for others");
        assert_eq!(share.next(["a", "b"]), Some(1));
        share.start("b");
        assert_eq!(share.next(["c"]), None, "all are occupied");
        share.end("a");
        assert_eq!(share.next(["a", "b", "c", "c"]), Some(2), "the one without a slot goes first");
        share.start("c");
        share.end("c");
        share.end("b");
        assert_eq!(share.next(["a", "b", "c"]), Some(1), "the one that came first of those without");
    }

    #[test]
    fn a_single_slot_is_for_all() {
        let mut share = NamespaceShares::new(1, Order::FewestRunning);
        assert_eq!(share.next(["a"]), Some(0));
        share.start("a");
        assert_eq!(share.next(["a", "b"]), None);
        share.end("a");
        assert_eq!(share.next(["a"]), Some(0));
    }

    #[test]
    fn a_namespace_that_has_used_little_goes_first() {
        let mut share = NamespaceShares::new(4, Order::LeastUsed);
        for _ in 0..100 {
            share.start("busy");
            share.end("busy");
        }
        for _ in 0..3 {
            assert_eq!(share.next(["busy", "busy", "other"]), Some(2), "although it occupies more");
            share.start("other");
        }
        assert_eq!(share.next(["busy", "other"]), Some(0), "one slot is for others");
    }

    #[test]
    fn a_busy_namespace_gets_a_quarter_of_the_slots() {
        let mut share = NamespaceShares::new(4, Order::LeastUsed);
        for _ in 0..HALVED_AFTER {
            share.start("busy");
            share.end("busy");
        }
        let mut next = || {
            let waiting = ["busy", "a", "b", "c"];
            let namespace = waiting[share.next(waiting).unwrap()];
            share.start(namespace);
            share.end(namespace);
            namespace
        };
        let busy = (0..40).filter(|_| next() == "busy").count();
        assert_eq!(busy, 10);
    }

    #[test]
    fn what_was_used_long_ago_does_not_count() {
        let mut share = NamespaceShares::new(4, Order::LeastUsed);
        let mut run = |namespace: &str, times: u32| {
            for _ in 0..times {
                share.start(namespace);
                share.end(namespace);
            }
            share.used.get(namespace).copied()
        };
        assert_eq!(run("old", HALVED_AFTER - 1), Some(HALVED_AFTER - 1));
        let most = run("new", 20 * HALVED_AFTER);
        assert!(most.is_some_and(|used| used <= 2 * HALVED_AFTER), "{most:?}");
        assert_eq!(share.used.keys().collect::<Vec<_>>(), ["new"]);
    }
}
