//! The memory that responses of workload clusters take while they are read, and that of what is kept of them.
//!
//! Responses that are being read have limits per cluster, per namespace and in total, so that one cluster cannot take what the
//! others of its namespace need, and one namespace not what the others need. What exceeds a limit waits. It is requested in this
//! order, and what was granted is never extended by waiting, so that no two responses wait for each other.

mod kept;

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicUsize},
    time::Duration,
};

use chandler_core::identity::ClusterKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::kept::NamespaceKept;
pub use self::kept::{KeptShare, TooMuchKept};

/// What each response may take at first. Most responses are smaller.
pub const SMALL: usize = 512 << 10;
/// How long a response waits for others. Then it is tried again later.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// How much is available at a level: to a cluster, to a namespace or in total.
struct Sizes {
    /// The number of responses that are being read at the same time.
    small: usize,
    /// The bytes that responses take which need more than [`SMALL`].
    large: usize,
    /// The bytes of events that are not complete yet.
    events: usize,
}

/// One response of the largest size.
const CLUSTER: Sizes = Sizes { small: 4, large: 16 << 20, events: 6 << 20 };
const NAMESPACE: Sizes = Sizes { small: 48, large: 96 << 20, events: 24 << 20 };
/// Together 480 MiB.
const TOTAL: Sizes = Sizes { small: 384, large: 192 << 20, events: 96 << 20 };

/// All memory for responses is in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Chandler reads so many large responses of clusters of namespace {namespace} that this one has to wait; it is requested \
     again later"
)]
pub struct Busy {
    namespace: String,
}

/// What the responses of all clusters take. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ResponseBudgets(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: Arc<Level>,
    namespaces: Mutex<HashMap<String, Weak<NamespaceBudget>>>,
    clusters: Mutex<HashMap<ClusterKey, Weak<Level>>>,
    /// The bytes that are kept of all clusters.
    kept: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct NamespaceBudget {
    level: Level,
    kept: Arc<NamespaceKept>,
}

#[derive(Debug)]
struct Level {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    events: Arc<Semaphore>,
}

impl Level {
    fn new(sizes: &Sizes) -> Self {
        let [small, large, events] =
            [sizes.small, sizes.large >> 10, sizes.events >> 10].map(|size| Arc::new(Semaphore::new(size)));
        Self { small, large, events }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            total: Arc::new(Level::new(&TOTAL)),
            namespaces: Mutex::default(),
            clusters: Mutex::default(),
            kept: Arc::default(),
        }
    }
}

impl ResponseBudgets {
    /// Returns what a cluster may use. All of its clients share it.
    pub fn cluster(&self, cluster: &ClusterKey) -> ClusterBudget {
        let level = shared(&self.0.clusters, cluster, || Level::new(&CLUSTER));
        let namespace = self.namespace(&cluster.namespace);
        ClusterBudget {
            namespace: cluster.namespace.as_str().into(),
            level,
            of_namespace: namespace,
            total: self.0.total.clone(),
        }
    }

    /// Returns an empty share of what is kept of the clusters of a namespace.
    pub fn kept(&self, namespace: &str) -> KeptShare {
        KeptShare::new(self.namespace(namespace).kept.clone())
    }

    fn namespace(&self, namespace: &str) -> Arc<NamespaceBudget> {
        shared(&self.0.namespaces, &namespace.to_owned(), || NamespaceBudget {
            level: Level::new(&NAMESPACE),
            kept: Arc::new(NamespaceKept::new(namespace, self.0.kept.clone())),
        })
    }
}

/// Returns the value of a key that is in use, or a new one. Those that are not in use any more are removed.
fn shared<K: Eq + Hash + Clone, V>(
    known: &Mutex<HashMap<K, Weak<V>>>,
    key: &K,
    new: impl FnOnce() -> V,
) -> Arc<V> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(value) = known.get(key).and_then(Weak::upgrade) {
        return value;
    }
    known.retain(|_, value| value.strong_count() > 0);
    let value = Arc::new(new());
    known.insert(key.clone(), Arc::downgrade(&value));
    value
}

/// What the responses of one cluster may take. Clones share it.
#[derive(Clone, Debug)]
pub struct ClusterBudget {
    namespace: Arc<str>,
    level: Arc<Level>,
    of_namespace: Arc<NamespaceBudget>,
    total: Arc<Level>,
}

impl ClusterBudget {
    /// Waits for memory for a response of up to [`SMALL`].
    pub async fn begin(&self) -> Result<Grant, Busy> {
        let permits = self.wait(|level| &level.small, 1).await?;
        Ok(Grant { budget: self.clone(), permits, bytes: SMALL, is_event: false })
    }

    /// Waits for memory for a response of this size. The caller holds no other grant.
    pub async fn whole(&self, bytes: usize) -> Result<Grant, Busy> {
        let permits = self.wait(|level| &level.large, kibibytes(bytes)).await?;
        Ok(Grant { budget: self.clone(), permits, bytes, is_event: false })
    }

    /// Returns an empty grant for an event.
    pub fn event(&self) -> Grant {
        Grant { budget: self.clone(), permits: Vec::new(), bytes: 0, is_event: true }
    }

    /// Returns an empty share of what is kept of the clusters of the namespace.
    pub fn kept(&self) -> KeptShare {
        KeptShare::new(self.of_namespace.kept.clone())
    }

    fn levels(&self) -> [&Level; 3] {
        [&self.level, &self.of_namespace.level, &self.total]
    }

    async fn wait(
        &self,
        part: impl Fn(&Level) -> &Arc<Semaphore>,
        permits: u32,
    ) -> Result<Vec<OwnedSemaphorePermit>, Busy> {
        let acquire = async {
            let mut acquired = Vec::with_capacity(3);
            for level in self.levels() {
                // The semaphores are never closed.
                acquired.extend(part(level).clone().acquire_many_owned(permits).await);
            }
            acquired
        };
        tokio::time::timeout(LONGEST_WAIT, acquire).await.map_err(|_| self.busy())
    }

    fn busy(&self) -> Busy {
        Busy { namespace: self.namespace.to_string() }
    }
}

/// Memory that a response may take. It is returned when this is dropped.
#[derive(Debug)]
pub struct Grant {
    budget: ClusterBudget,
    permits: Vec<OwnedSemaphorePermit>,
    bytes: usize,
    is_event: bool,
}

impl Grant {
    /// Extends the grant to this size, if the memory is available now.
    pub fn extend(&mut self, bytes: usize) -> Result<(), Busy> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let size = bytes.next_power_of_two();
        let more = kibibytes(size - self.bytes);
        let mut acquired = Vec::with_capacity(3);
        for level in self.budget.levels() {
            let part = if self.is_event { &level.events } else { &level.large };
            acquired.push(part.clone().try_acquire_many_owned(more).map_err(|_| self.budget.busy())?);
        }
        self.permits.append(&mut acquired);
        self.bytes = size;
        Ok(())
    }

    /// Returns all of the memory.
    pub fn clear(&mut self) {
        self.permits.clear();
        self.bytes = 0;
    }
}

fn kibibytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
