//! Schedules operations: limited per cluster and overall, fair between clusters. An operation that only waits for
//! objects to become ready does not occupy a slot.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::identity::ClusterKey;

/// Limits on concurrent operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub per_cluster: usize,
    pub overall: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_cluster: 4, overall: 16 }
    }
}

/// The queue of operations, identified by `Id`.
#[derive(Debug)]
pub struct Schedule<Id> {
    limits: Limits,
    queued: HashMap<ClusterKey, VecDeque<Id>>,
    /// Clusters with queued operations; the front one is served next.
    turn: VecDeque<ClusterKey>,
    active: HashMap<Id, ClusterKey>,
}

impl<Id: Clone + Eq + Hash> Schedule<Id> {
    pub fn new(limits: Limits) -> Self {
        Self { limits, queued: HashMap::new(), turn: VecDeque::new(), active: HashMap::new() }
    }

    /// Queues an operation.
    pub fn submit(&mut self, id: Id, cluster: ClusterKey) {
        let queue = self.queued.entry(cluster.clone()).or_default();
        if queue.is_empty() {
            self.turn.push_back(cluster);
        }
        queue.push_back(id);
    }

    /// Takes the next operation that may start and assigns a slot to it.
    pub fn start_next(&mut self) -> Option<Id> {
        if self.active.len() >= self.limits.overall {
            return None;
        }
        let at = self.turn.iter().position(|cluster| self.active_on(cluster) < self.limits.per_cluster)?;
        let cluster = self.turn.remove(at)?;
        let queue = self.queued.get_mut(&cluster)?;
        let id = queue.pop_front()?;
        if queue.is_empty() {
            self.queued.remove(&cluster);
        } else {
            self.turn.push_back(cluster.clone());
        }
        self.active.insert(id.clone(), cluster);
        Some(id)
    }

    /// Frees the slot of an operation that has ended or only waits from now on, or removes the operation from the
    /// queue.
    pub fn release(&mut self, id: &Id) {
        if self.active.remove(id).is_some() {
            return;
        }
        for queue in self.queued.values_mut() {
            queue.retain(|queued| queued != id);
        }
        self.queued.retain(|_, queue| !queue.is_empty());
        self.turn.retain(|cluster| self.queued.contains_key(cluster));
    }

    /// Returns the number of operations that wait for a slot.
    pub fn queued(&self) -> usize {
        self.queued.values().map(VecDeque::len).sum()
    }

    /// Returns the number of occupied slots.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    fn active_on(&self, cluster: &ClusterKey) -> usize {
        self.active.values().filter(|active| *active == cluster).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterKey {
        ClusterKey::new("fleet", name)
    }

    fn started(schedule: &mut Schedule<u32>) -> Vec<u32> {
        std::iter::from_fn(|| schedule.start_next()).collect()
    }

    #[test]
    fn clusters_take_turns() {
        let mut schedule = Schedule::new(Limits { per_cluster: 4, overall: 16 });
        for (id, name) in [(1, "blue"), (2, "blue"), (3, "blue"), (4, "green"), (5, "red")] {
            schedule.submit(id, cluster(name));
        }
        assert_eq!(started(&mut schedule), [1, 4, 5, 2, 3]);
    }

    #[test]
    fn limits_apply_and_a_busy_cluster_does_not_block_another() {
        let mut schedule = Schedule::new(Limits { per_cluster: 2, overall: 3 });
        for id in 1..=4 {
            schedule.submit(id, cluster("blue"));
        }
        schedule.submit(5, cluster("green"));
        schedule.submit(6, cluster("green"));
        assert_eq!(started(&mut schedule), [1, 5, 2]);
        schedule.release(&5);
        assert_eq!(started(&mut schedule), [6]);
    }

    #[test]
    fn a_waiting_operation_frees_its_slot() {
        let mut schedule = Schedule::new(Limits { per_cluster: 1, overall: 1 });
        schedule.submit(1, cluster("blue"));
        schedule.submit(2, cluster("blue"));
        assert_eq!(started(&mut schedule), [1]);
        schedule.release(&1);
        assert_eq!(started(&mut schedule), [2]);
        schedule.release(&1);
        assert_eq!(schedule.active(), 1, "its slot is not freed twice");
    }

    #[test]
    fn a_queued_operation_can_be_removed() {
        let mut schedule = Schedule::new(Limits::default());
        schedule.submit(1, cluster("blue"));
        schedule.release(&1);
        assert_eq!((schedule.queued(), started(&mut schedule)), (0, vec![]));
    }
}
