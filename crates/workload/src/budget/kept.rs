//! The memory of what is kept of responses: the records of releases, and the states of objects.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many bytes may be kept of a cluster: tens of thousands of records or objects.
const MAX_CLUSTER: usize = 32 << 20;
/// What is kept of all clusters of a namespace, and of all clusters.
const MAX_NAMESPACE: usize = 256 << 20;
const MAX_TOTAL: usize = 512 << 20;
/// A cluster that takes less than this is never refused because of others.
const ALWAYS: usize = 1 << 20;

/// A cluster has too many records or objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooMuchKept {
    #[error(
        "what Chandler would have to remember of the cluster's releases and objects takes more than {} MiB; remove releases, or \
         revisions of them", MAX_CLUSTER >> 20
    )]
    Cluster,
    #[error(
        "what Chandler remembers of the clusters of namespace {0} takes more than {most} MiB, and this cluster needs more than \
         {always} MiB of it; remove releases, or move clusters to other namespaces",
        most = MAX_NAMESPACE >> 20,
        always = ALWAYS >> 20
    )]
    Namespace(String),
    #[error(
        "what Chandler remembers of all clusters takes more than {} MiB, and this cluster needs more than {} MiB of it; remove \
         releases, or manage some clusters with another Chandler", MAX_TOTAL >> 20, ALWAYS >> 20
    )]
    Total,
}

/// What is kept of the clusters of a namespace.
#[derive(Debug)]
pub(super) struct NamespaceKept {
    namespace: String,
    used: AtomicUsize,
    /// What is kept of all clusters.
    total: Arc<AtomicUsize>,
}

impl NamespaceKept {
    pub fn new(namespace: &str, total: Arc<AtomicUsize>) -> Self {
        Self { namespace: namespace.to_owned(), used: AtomicUsize::new(0), total }
    }

    /// Adds so many bytes. Returns what is used in the namespace and in total then.
    fn add(&self, bytes: usize) -> (usize, usize) {
        let add = |used: &AtomicUsize| used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        (add(&self.used), add(&self.total))
    }

    fn subtract(&self, bytes: usize) {
        for used in [&self.used, &*self.total] {
            used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// What is kept of one cluster. It is returned when this is dropped.
#[derive(Debug)]
pub struct KeptShare {
    namespace: Arc<NamespaceKept>,
    bytes: usize,
}

impl KeptShare {
    pub(super) fn new(namespace: Arc<NamespaceKept>) -> Self {
        Self { namespace, bytes: 0 }
    }

    /// Changes the number of bytes, unless that is too many.
    pub fn set(&mut self, bytes: usize) -> Result<(), TooMuchKept> {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.namespace.subtract(self.bytes - bytes);
            self.bytes = bytes;
            return Ok(());
        };
        if more > 0 && bytes > MAX_CLUSTER {
            return Err(TooMuchKept::Cluster);
        }
        let (of_namespace, total) = self.namespace.add(more);
        let exceeded = if of_namespace > MAX_NAMESPACE {
            Some(TooMuchKept::Namespace(self.namespace.namespace.clone()))
        } else {
            (total > MAX_TOTAL).then_some(TooMuchKept::Total)
        };
        if let Some(exceeded) = exceeded.filter(|_| more > 0 && bytes > ALWAYS) {
            self.namespace.subtract(more);
            return Err(exceeded);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.namespace.subtract(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clusters_that_take_much_are_refused() {
        let total = Arc::<AtomicUsize>::default();
        let namespace = Arc::new(NamespaceKept::new("fleet", total.clone()));
        let share = || KeptShare::new(namespace.clone());
        let mut large: Vec<_> = (0..MAX_NAMESPACE / MAX_CLUSTER).map(|_| share()).collect();
        for one in &mut large {
            assert_eq!(one.set(MAX_CLUSTER + 1), Err(TooMuchKept::Cluster));
            assert_eq!(one.set(MAX_CLUSTER), Ok(()));
        }
        let mut other = share();
        assert_eq!(other.set(ALWAYS), Ok(()), "a cluster like most is not affected");
        assert_eq!(other.set(ALWAYS + 1), Err(TooMuchKept::Namespace("fleet".to_owned())));
        assert_eq!(other.set(ALWAYS / 2), Ok(()), "less is always possible");
        let mut elsewhere = KeptShare::new(Arc::new(NamespaceKept::new("other", total.clone())));
        assert_eq!(elsewhere.set(MAX_CLUSTER), Ok(()), "another namespace is not affected");
        total.fetch_add(MAX_TOTAL, Ordering::Relaxed);
        let mut third = KeptShare::new(Arc::new(NamespaceKept::new("third", total.clone())));
        assert_eq!((third.set(ALWAYS), third.set(ALWAYS + 1)), (Ok(()), Err(TooMuchKept::Total)));
        total.fetch_sub(MAX_TOTAL, Ordering::Relaxed);
        drop((large, elsewhere, third));
        assert_eq!(other.set(MAX_CLUSTER), Ok(()));
        drop(other);
        assert_eq!((namespace.used.load(Ordering::Relaxed), total.load(Ordering::Relaxed)), (0, 0));
    }
}
