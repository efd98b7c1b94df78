//! Schedules operations: limited per cluster and overall, fair between clusters. An operation that only waits for
//! objects to become ready does not occupy a slot. Because each costs memory, the number of clusters with such operations is
//! limited; it is not the number of operations, because objects of one release often wait for those of another one on the
//! same cluster, such as its network. While the memory of a namespace is low, its number does not grow. An operation that waits for
//! a process of its package tool does not occupy a slot either, and no further one of its namespace starts meanwhile. A cluster that
//! has not answered an operation gets one slot only, so that few clusters that hang cannot occupy all.
//!
//! Namespaces take turns: the one that occupies the fewest slots is next, and of several the one whose turn was the longest ago.
//! A namespace may occupy all slots while no other one needs them. Because its operations may take long, there are a few slots
//! more, a [reserve](Limits::reserve), for namespaces that occupy none or few. The same holds for clusters with operations that
//! only wait.
//!
//! Within a namespace, clusters take turns. If more clusters wait than a package tool keeps connections for, each gets several operations per
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

/// Limits on concurrent operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub per_cluster: usize,
    pub overall: usize,
    /// Operations of a namespace. `None` means that only the other limits apply.
    pub per_namespace: Option<usize>,
    /// Clusters with operations that only wait. Beyond it, no operation that is going to wait is started on another cluster.
    pub waiting_clusters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_cluster: 4, overall: 16, per_namespace: None, waiting_clusters: 250 }
    }
}

impl Limits {
    /// Returns the number of slots, in addition to `limit`, that are for namespaces that occupy none or few.
    pub fn reserve(limit: usize) -> usize {
        (limit / 4).max(1)
    }

    /// Returns whether a namespace may occupy one more of the slots that `limit` is about. `all` are occupied, `own` of them by the
    /// namespace.
    fn has_room(limit: usize, all: usize, own: usize) -> bool {
        let reserve = Self::reserve(limit);
        all < limit || (all < limit + reserve && own < (reserve / 2).max(1))
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
    /// How many turns had ended when the last turn of each namespace ended.
    turns: HashMap<String, u64>,
    /// How many turns have ended.
    ended_turns: u64,
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
            turns: HashMap::new(),
            ended_turns: 0,
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
        if self.active.len() >= self.limits.overall + Limits::reserve(self.limits.overall) {
            return None;
        }
        let per_turn = if self.turn.len() > MANY_CLUSTERS { OPERATIONS_PER_TURN } else { 1 };
        let (position, at) = self.next_position()?;
        let cluster = self.turn.remove(position)?;
        let queue = self.queued.get_mut(&cluster)?;
        let Queued { id, .. } = queue.operations.remove(at)?;
        queue.started += 1;
        let goes_on = queue.started < per_turn && !queue.operations.is_empty();
        if queue.operations.is_empty() {
            self.queued.remove(&cluster);
        } else if goes_on {
            self.turn.insert(position, cluster.clone());
        } else {
            queue.started = 0;
            self.turn.push_back(cluster.clone());
        }
        if !goes_on {
            self.record_turn(&cluster.namespace);
        }
        self.active.insert(id.clone(), cluster);
        Some(id)
    }

    /// Returns the position of the cluster whose operation is next, and the position of that operation in its queue.
    fn next_position(&self) -> Option<(usize, usize)> {
        let occupied = Occupied::new(self.active.values(), self.waiting.values());
        let mut open: HashSet<&str> = self.turn.iter().map(|cluster| &*cluster.namespace).collect();
        open.retain(|namespace| self.has_slot(occupied.slots(namespace)));
        self.suspended.values().for_each(|cluster| _ = open.remove(&*cluster.namespace));
        let mut best = None;
        for (position, cluster) in self.turn.iter().enumerate() {
            if open.is_empty() {
                break;
            }
            if !open.contains(&*cluster.namespace) {
                continue;
            }
            let Some(at) = self.startable(cluster, &occupied) else { continue };
            open.remove(&*cluster.namespace);
            let last_turn = self.turns.get(&cluster.namespace).copied().unwrap_or_default();
            let order = (occupied.slots(&cluster.namespace), last_turn, position, at);
            best = Some(best.map_or(order, |best: (usize, u64, usize, usize)| best.min(order)));
        }
        best.map(|(_, _, position, at)| (position, at))
    }

    /// Returns whether a namespace that occupies `own` slots may occupy one more.
    fn has_slot(&self, own: usize) -> bool {
        self.limits.per_namespace.is_none_or(|limit| own < limit)
            && Limits::has_room(self.limits.overall, self.active.len(), own)
    }

    /// Returns the position of the first operation of a cluster that may start, if its namespace has a slot.
    fn startable(&self, cluster: &ClusterKey, occupied: &Occupied<'_>) -> Option<usize> {
        let slots = match (self.answering.contains(cluster), self.turn.len() > MANY_CLUSTERS) {
            (false, _) => 1,
            // So that few clusters with slow operations cannot occupy all slots for several turns.
            (true, true) => self.limits.per_cluster.min(2),
            (true, false) => self.limits.per_cluster,
        };
        if occupied.by_cluster.get(cluster).is_some_and(|active| *active >= slots) {
            return None;
        }
        let may_wait = self.may_wait(cluster, occupied);
        self.queued.get(cluster)?.operations.iter().position(|queued| may_wait || !queued.waits)
    }

    /// Returns whether an operation that is going to wait may start on a cluster.
    fn may_wait(&self, cluster: &ClusterKey, occupied: &Occupied<'_>) -> bool {
        let own = occupied.waiting_by_namespace.get(&*cluster.namespace).copied().unwrap_or_default();
        let has_room = !self.low_on_memory.contains(&cluster.namespace)
            && Limits::has_room(self.limits.waiting_clusters, occupied.waiting.len(), own);
        has_room || occupied.waiting.contains(cluster)
    }

    /// Returns whether a queued operation has to wait because its namespace occupies as many slots as it may.
    pub fn is_at_namespace_limit(&self, namespace: &str) -> bool {
        let own = || self.active.values().filter(|cluster| cluster.namespace == namespace).count();
        self.limits.per_namespace.is_some_and(|limit| own() >= limit)
    }

    fn record_turn(&mut self, namespace: &str) {
        self.ended_turns += 1;
        self.turns.insert(namespace.to_owned(), self.ended_turns);
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
        self.record_turn(&cluster.namespace);
    }

    /// Forgets whether a cluster has answered, because it is gone.
    pub fn forget(&mut self, cluster: &ClusterKey) {
        self.answering.remove(cluster);
        let mut used = self.turn.iter().chain(self.active.values());
        if !used.any(|other| other.namespace == cluster.namespace) {
            self.turns.remove(&cluster.namespace);
        }
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

/// What operations occupy.
struct Occupied<'a> {
    by_cluster: HashMap<&'a ClusterKey, usize>,
    by_namespace: HashMap<&'a str, usize>,
    /// Clusters with operations that only wait.
    waiting: HashSet<&'a ClusterKey>,
    /// The number of these clusters.
    waiting_by_namespace: HashMap<&'a str, usize>,
}

impl<'a> Occupied<'a> {
    fn new(
        active: impl Iterator<Item = &'a ClusterKey>,
        waiting: impl Iterator<Item = &'a ClusterKey>,
    ) -> Self {
        let (mut by_cluster, mut by_namespace) = (HashMap::new(), HashMap::new());
        for cluster in active {
            *by_cluster.entry(cluster).or_default() += 1;
            *by_namespace.entry(&*cluster.namespace).or_default() += 1;
        }
        let waiting: HashSet<_> = waiting.collect();
        let mut waiting_by_namespace = HashMap::new();
        for cluster in &waiting {
            *waiting_by_namespace.entry(&*cluster.namespace).or_default() += 1;
        }
        Self { by_cluster, by_namespace, waiting, waiting_by_namespace }
    }

    /// Returns the number of slots that a namespace occupies.
    fn slots(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
