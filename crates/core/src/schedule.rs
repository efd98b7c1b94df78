//! Schedules operations: limited per cluster and overall, fair between clusters. An operation that only waits for
//! objects to become ready does not occupy a slot. Because each costs memory, the number of clusters with such operations is
//! limited; it is not the number of operations, because objects of one release often wait for those of another one on the
//! same cluster, such as its network. While memory is low, it does not grow. An operation that waits for a process of its package tool
//! does not occupy a slot either, and no further one of its namespace starts meanwhile. A namespace cannot occupy all slots. A cluster that has not answered an operation gets one slot only, so that few clusters
//! that hang cannot occupy all.
//!
//! Clusters take turns. If more clusters wait than a package tool keeps connections for, each gets several operations per
//! turn, so that the tool does not connect again for every operation.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::Hash,
};

use crate::identity::ClusterKey;

/// If operations of more clusters are queued, a cluster gets [`OPERATIONS_PER_TURN`]. The Helm driver keeps the connections of
/// 1,024 clusters.
const MANY_CLUSTERS: usize = 900;
/// How many operations a cluster gets per turn if there are many clusters.
const OPERATIONS_PER_TURN: usize = 16;
/// One of so many slots is left for other namespaces.
const OVERALL_PER_LEFT_SLOT: usize = 8;

/// Limits on concurrent operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub per_cluster: usize,
    pub overall: usize,
    /// Clusters with operations that only wait. Beyond it, no operation that is going to wait is started on another cluster.
    pub waiting_clusters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_cluster: 4, overall: 16, waiting_clusters: 250 }
    }
}

/// An operation in the queue.
#[derive(Debug)]
struct Queued<Id> {
    id: Id,
    /// Whether it is going to wait for objects.
    waits: bool,
}

/// The queued operations of a cluster.
#[derive(Debug)]
struct ClusterQueue<Id> {
    operations: VecDeque<Queued<Id>>,
    /// How many operations were started in its current turn.
    started: usize,
}

/// The queue of operations, identified by `Id`.
#[derive(Debug)]
pub struct Schedule<Id> {
    limits: Limits,
    queued: HashMap<ClusterKey, ClusterQueue<Id>>,
    /// Clusters with queued operations; the front one is served next.
    turn: VecDeque<ClusterKey>,
    active: HashMap<Id, ClusterKey>,
    waiting: HashMap<Id, ClusterKey>,
    /// Operations that wait for a process.
    suspended: HashMap<Id, ClusterKey>,
    /// Clusters that have answered their last operation.
    answering: HashSet<ClusterKey>,
    /// The namespaces whose operations that wait occupy as much memory as they may.
    low_on_memory: BTreeSet<String>,
}

impl<Id: Clone + Eq + Hash> Schedule<Id> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            queued: HashMap::new(),
            turn: VecDeque::new(),
            active: HashMap::new(),
            waiting: HashMap::new(),
            suspended: HashMap::new(),
            answering: HashSet::new(),
            low_on_memory: BTreeSet::new(),
        }
    }

    /// Sets the namespaces whose operations that wait occupy as much memory as they may. There, no operation that is going to
    /// wait is started on another cluster. Returns whether they have changed.
    pub fn set_low_on_memory(&mut self, namespaces: BTreeSet<String>) -> bool {
        let is_new = self.low_on_memory != namespaces;
        self.low_on_memory = namespaces;
        is_new
    }

    /// Queues an operation. `waits` tells whether it is going to wait for objects.
    pub fn submit(&mut self, id: Id, cluster: ClusterKey, waits: bool) {
        let queue = self.queued.entry(cluster.clone()).or_insert_with(|| {
            self.turn.push_back(cluster);
            ClusterQueue { operations: VecDeque::new(), started: 0 }
        });
        queue.operations.push_back(Queued { id, waits });
    }

    /// Takes the next operation that may start and assigns a slot to it.
    pub fn start_next(&mut self) -> Option<Id> {
        if self.active.len() >= self.limits.overall {
            return None;
        }
        let per_turn = if self.turn.len() > MANY_CLUSTERS { OPERATIONS_PER_TURN } else { 1 };
        let waiting: HashSet<_> = self.waiting.values().collect();
        let (position, at) = self
            .turn
            .iter()
            .enumerate()
            .find_map(|(position, cluster)| Some((position, self.startable(cluster, &waiting)?)))?;
        let cluster = self.turn.remove(position)?;
        let queue = self.queued.get_mut(&cluster)?;
        let Queued { id, .. } = queue.operations.remove(at)?;
        queue.started += 1;
        if queue.operations.is_empty() {
            self.queued.remove(&cluster);
        } else if queue.started < per_turn {
            self.turn.insert(position, cluster.clone());
        } else {
            queue.started = 0;
            self.turn.push_back(cluster.clone());
        }
        self.active.insert(id.clone(), cluster);
        Some(id)
    }

    /// Returns the position of the first operation of a cluster that may start. `waiting` are the clusters with operations that
    /// only wait.
    fn startable(&self, cluster: &ClusterKey, waiting: &HashSet<&ClusterKey>) -> Option<usize> {
        let slots = match (self.answering.contains(cluster), self.turn.len() > MANY_CLUSTERS) {
            (false, _) => 1,
            // So that few clusters with slow operations cannot occupy all slots for several turns.
            (true, true) => self.limits.per_cluster.min(2),
            (true, false) => self.limits.per_cluster,
        };
        if self.active.values().filter(|active| *active == cluster).count() >= slots
            || !self.has_slot(&cluster.namespace)
        {
            return None;
        }
        let has_room =
            !self.low_on_memory.contains(&cluster.namespace) && waiting.len() < self.limits.waiting_clusters;
        let may_wait = has_room || waiting.contains(cluster);
        self.queued.get(cluster)?.operations.iter().position(|queued| may_wait || !queued.waits)
    }

    /// Returns whether an operation of a namespace may start. Some slots are left for other namespaces.
    fn has_slot(&self, namespace: &str) -> bool {
        let of_namespace = |cluster: &&ClusterKey| cluster.namespace == namespace;
        let left = self.limits.overall / OVERALL_PER_LEFT_SLOT;
        let active = self.active.values().filter(of_namespace).count();
        active < self.limits.overall - left && !self.suspended.values().any(|one| of_namespace(&one))
    }

    /// Frees the slot of an operation while it waits for a process.
    pub fn suspend(&mut self, id: &Id) {
        if let Some(cluster) = self.active.remove(id) {
            self.suspended.insert(id.clone(), cluster);
        }
    }

    /// Assigns a slot to an operation that has got its process, even if none is free: there are few processes.
    pub fn resume(&mut self, id: &Id) {
        if let Some(cluster) = self.suspended.remove(id) {
            self.active.insert(id.clone(), cluster);
        }
    }

    /// Records whether the cluster of an operation with a slot has answered it. Returns whether that is new, so that further
    /// operations may start.
    pub fn answered(&mut self, id: &Id, answered: bool) -> bool {
        let Some(cluster) = self.active.get(id).cloned() else { return false };
        if answered {
            return self.answering.insert(cluster);
        }
        self.end_turn(&cluster);
        self.answering.remove(&cluster)
    }

    /// Lets all other clusters take their turn first.
    fn end_turn(&mut self, cluster: &ClusterKey) {
        let Some(queue) = self.queued.get_mut(cluster) else { return };
        queue.started = 0;
        self.turn.retain(|other| other != cluster);
        self.turn.push_back(cluster.clone());
    }

    /// Forgets whether a cluster has answered, because it is gone.
    pub fn forget(&mut self, cluster: &ClusterKey) {
        self.answering.remove(cluster);
    }

    /// Frees the slot of an operation that only waits from now on.
    pub fn wait(&mut self, id: &Id) {
        if let Some(cluster) = self.active.remove(id) {
            self.waiting.insert(id.clone(), cluster);
        }
    }

    /// Frees the slot of an operation that has ended, or removes the operation from the queue.
    pub fn release(&mut self, id: &Id) {
        let places = [&mut self.active, &mut self.waiting, &mut self.suspended];
        if places.into_iter().any(|place| place.remove(id).is_some()) {
            return;
        }
        for queue in self.queued.values_mut() {
            queue.operations.retain(|queued| queued.id != *id);
        }
        self.queued.retain(|_, queue| !queue.operations.is_empty());
        self.turn.retain(|cluster| self.queued.contains_key(cluster));
    }

    /// Returns the number of operations that wait for a slot.
    pub fn queued(&self) -> usize {
        self.queued.values().map(|queue| queue.operations.len()).sum()
    }

    /// Returns the number of occupied slots.
    pub fn active(&self) -> usize {
        self.active.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLUE: &str = "blue";

    fn cluster(name: &str) -> ClusterKey {
        ClusterKey::new("fleet", name)
    }

    fn limits(per_cluster: usize, overall: usize) -> Limits {
        Limits { per_cluster, overall, ..Limits::default() }
    }

    /// A schedule whose clusters have answered an operation.
    fn schedule(limits: Limits) -> Schedule<u32> {
        let mut schedule = Schedule::new(limits);
        schedule.answering = ["blue", "green", "red"].map(cluster).into();
        schedule
    }

    fn started(schedule: &mut Schedule<u32>) -> Vec<u32> {
        std::iter::from_fn(|| schedule.start_next()).collect()
    }

    #[test]
    fn clusters_take_turns() {
        let mut schedule = schedule(limits(4, 16));
        for (id, name) in [(1, BLUE), (2, BLUE), (3, BLUE), (4, "green"), (5, "red")] {
            schedule.submit(id, cluster(name), false);
        }
        assert_eq!(started(&mut schedule), [1, 4, 5, 2, 3]);
    }

    /// A schedule with so many clusters that each gets several operations per turn: 0 to 19 on the first one, 100 to 119 on the
    /// second one, and so on.
    fn schedule_of_many_clusters() -> Schedule<u32> {
        let mut schedule = Schedule::new(limits(4, 16));
        for number in 0..=u32::try_from(MANY_CLUSTERS).unwrap() {
            let name = format!("cluster-{number}");
            schedule.answering.insert(cluster(&name));
            for operation in 0..20 {
                schedule.submit(number * 100 + operation, cluster(&name), false);
            }
        }
        schedule
    }

    #[test]
    fn many_clusters_get_several_operations_per_turn() {
        let mut schedule = schedule_of_many_clusters();
        let mut next = || {
            let id = schedule.start_next().unwrap();
            schedule.release(&id);
            id
        };
        let first: Vec<_> = (0..17).map(|_| next()).collect();
        assert_eq!(first, (0..16).chain([100]).collect::<Vec<_>>());
    }

    #[test]
    fn with_many_clusters_a_cluster_does_not_occupy_more_than_two_slots() {
        let mut schedule = schedule_of_many_clusters();
        assert_eq!(started(&mut schedule)[..4], [0, 1, 100, 101]);
    }

    #[test]
    fn the_turn_of_a_cluster_ends_when_it_does_not_answer() {
        let mut schedule = schedule_of_many_clusters();
        let id = schedule.start_next().unwrap();
        schedule.answered(&id, false);
        schedule.release(&id);
        assert_eq!(schedule.start_next(), Some(100));
    }

    #[test]
    fn limits_apply_and_a_busy_cluster_does_not_block_another() {
        let mut schedule = schedule(limits(2, 3));
        for id in 1..=4 {
            schedule.submit(id, cluster(BLUE), false);
        }
        schedule.submit(5, cluster("green"), false);
        schedule.submit(6, cluster("green"), false);
        assert_eq!(started(&mut schedule), [1, 5, 2]);
        schedule.release(&5);
        assert_eq!(started(&mut schedule), [6]);
    }

    #[test]
    fn a_waiting_operation_frees_its_slot() {
        let mut schedule = schedule(limits(1, 1));
        schedule.submit(1, cluster(BLUE), true);
        schedule.submit(2, cluster(BLUE), true);
        assert_eq!(started(&mut schedule), [1]);
        schedule.wait(&1);
        assert_eq!(started(&mut schedule), [2]);
        schedule.release(&1);
        assert_eq!(schedule.active(), 1, "its slot is not freed twice");
    }

    #[test]
    fn beyond_the_limit_of_clusters_that_wait_operations_start_that_do_not_wait_or_are_on_such_a_cluster() {
        let mut schedule = schedule(Limits { waiting_clusters: 1, ..limits(4, 16) });
        schedule.submit(1, cluster(BLUE), true);
        assert_eq!(schedule.start_next(), Some(1));
        schedule.wait(&1);
        for (id, name, waits) in [(2, "green", true), (3, "green", false), (4, BLUE, true)] {
            schedule.submit(id, cluster(name), waits);
        }
        assert_eq!(started(&mut schedule), [3, 4]);
        schedule.release(&1);
        schedule.release(&4);
        assert_eq!(started(&mut schedule), [2]);
    }

    #[test]
    fn while_memory_is_low_operations_start_that_do_not_wait_or_are_on_a_cluster_that_waits() {
        let mut schedule = schedule(limits(4, 16));
        schedule.submit(1, cluster(BLUE), true);
        assert_eq!(schedule.start_next(), Some(1));
        schedule.wait(&1);
        assert!(schedule.set_low_on_memory(["fleet".to_owned()].into()));
        assert!(!schedule.set_low_on_memory(["fleet".to_owned()].into()));
        schedule.submit(5, ClusterKey::new("other", "red"), true);
        for (id, name, waits) in [(2, "green", true), (3, "green", false), (4, BLUE, true)] {
            schedule.submit(id, cluster(name), waits);
        }
        assert_eq!(started(&mut schedule), [5, 3, 4], "another namespace has its own memory");
        assert!(schedule.set_low_on_memory(BTreeSet::new()));
        assert_eq!(started(&mut schedule), [2]);
    }

    #[test]
    fn a_cluster_that_does_not_answer_gets_one_slot() {
        let mut schedule = Schedule::new(limits(4, 16));
        for id in 1..=4 {
            schedule.submit(id, cluster(BLUE), false);
        }
        assert_eq!(started(&mut schedule), [1], "it has not answered yet");
        assert!(schedule.answered(&1, true));
        assert!(!schedule.answered(&1, true));
        assert_eq!(started(&mut schedule), [2, 3, 4]);
        schedule.submit(5, cluster(BLUE), false);
        schedule.answered(&2, false);
        for id in 1..=3 {
            schedule.release(&id);
        }
        assert_eq!(started(&mut schedule), [] as [u32; 0], "one operation is still running");
        schedule.release(&4);
        assert_eq!(started(&mut schedule), [5]);
    }

    #[test]
    fn an_operation_that_waits_for_a_process_keeps_no_other_namespace_waiting() {
        let mut schedule = schedule(limits(4, 2));
        let green = ClusterKey::new("other", "green");
        for id in 1..=3 {
            schedule.submit(id, cluster(BLUE), false);
        }
        schedule.submit(4, green.clone(), false);
        assert_eq!(started(&mut schedule), [1, 4]);
        schedule.suspend(&1);
        schedule.submit(5, green, false);
        assert_eq!(started(&mut schedule), [] as [u32; 0], "the other cluster has not answered");
        schedule.answered(&4, true);
        assert_eq!(started(&mut schedule), [5], "the namespace that waits starts nothing");
        schedule.resume(&1);
        assert_eq!((schedule.active(), started(&mut schedule)), (3, vec![]));
        for id in [1, 4, 5] {
            schedule.release(&id);
        }
        assert_eq!(started(&mut schedule), [2, 3]);
        schedule.suspend(&2);
        schedule.release(&2);
        schedule.resume(&2);
        assert_eq!(schedule.active(), 1, "it has ended");
    }

    #[test]
    fn a_namespace_cannot_occupy_all_slots() {
        let mut schedule = Schedule::new(limits(4, 16));
        for id in 0..20 {
            schedule.submit(id, cluster(&format!("cluster-{id}")), false);
        }
        assert_eq!(started(&mut schedule).len(), 14);
        schedule.submit(20, ClusterKey::new("other", BLUE), false);
        assert_eq!(started(&mut schedule), [20]);
    }

    #[test]
    fn a_queued_operation_can_be_removed() {
        let mut schedule = schedule(Limits::default());
        schedule.submit(1, cluster(BLUE), false);
        schedule.release(&1);
        assert_eq!((schedule.queued(), started(&mut schedule)), (0, vec![]));
    }
}
