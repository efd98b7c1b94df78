//! Which namespace gets the next of a limited number of slots.

use std::collections::BTreeMap;

/// Slots for concurrent work, such as fetches, that namespaces share. A namespace cannot occupy all of them, so that the others
/// go on while its repositories hang.
#[derive(Clone, Debug)]
pub struct NamespaceShares {
    slots: usize,
    per_namespace: usize,
    /// Occupied slots by namespace.
    running: BTreeMap<String, usize>,
}

impl NamespaceShares {
    /// Creates slots, of which a namespace gets at most three quarters, rounded up. It can get all of fewer than four.
    pub fn new(slots: usize) -> Self {
        Self { slots, per_namespace: slots - slots / 4, running: BTreeMap::new() }
    }

    /// Creates slots, of which a namespace gets at most this number.
    pub fn with_limit(slots: usize, per_namespace: usize) -> Self {
        Self { slots, per_namespace: per_namespace.min(slots), running: BTreeMap::new() }
    }

    /// Returns which of the waiting namespaces, in the order of their arrival, gets the next slot: the one that occupies the
    /// fewest, and of several the one that came first. `None` means that none can start.
    pub fn next<'a>(&self, waiting: impl IntoIterator<Item = &'a str>) -> Option<usize> {
        if self.running.values().sum::<usize>() >= self.slots {
            return None;
        }
        let running = |namespace: &str| self.running.get(namespace).copied().unwrap_or_default();
        let waiting = waiting.into_iter().enumerate().map(|(at, namespace)| (running(namespace), at));
        let next = waiting.filter(|(running, _)| *running < self.per_namespace).min();
        next.map(|(_, at)| at)
    }

    /// Records that a namespace occupies one slot more.
    pub fn start(&mut self, namespace: &str) {
        *self.running.entry(namespace.to_owned()).or_default() += 1;
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
        let mut share = NamespaceShares::new(4);
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
    fn the_limit_of_a_namespace_can_be_chosen() {
        let mut share = NamespaceShares::with_limit(8, 1);
        share.start("a");
        assert_eq!(share.next(["a", "b"]), Some(1));
    }

    #[test]
    fn a_single_slot_is_for_all() {
        let mut share = NamespaceShares::new(1);
        assert_eq!(share.next(["a"]), Some(0));
        share.start("a");
        assert_eq!(share.next(["a", "b"]), None);
        share.end("a");
        assert_eq!(share.next(["a"]), Some(0));
    }
}
