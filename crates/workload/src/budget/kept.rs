//! The memory of what is kept of responses: the records of releases, and the states of objects.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many bytes may be kept of a cluster: tens of thousands of records or objects.
const MAX_CLUSTER: usize = 32 << 20;
/// What is kept of all clusters of a namespace.
const MAX_NAMESPACE: usize = 256 << 20;
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
        "what Chandler remembers of the clusters of namespace {0} takes more than {} MiB, and this cluster needs more than {} MiB \
         of it; remove releases, or move clusters to other namespaces", MAX_NAMESPACE >> 20, ALWAYS >> 20
    )]
    Namespace(String),
}

/// What is kept of the clusters of a namespace.
#[derive(Debug)]
pub(super) struct NamespaceKept {
    namespace: String,
    used: AtomicUsize,
}

impl NamespaceKept {
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), used: AtomicUsize::new(0) }
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
        let used = &self.namespace.used;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            if bytes > MAX_CLUSTER {
                return Err(TooMuchKept::Cluster);
            }
            let before = used.fetch_add(more, Ordering::Relaxed);
            if bytes > ALWAYS && before.saturating_add(more) > MAX_NAMESPACE {
                used.fetch_sub(more, Ordering::Relaxed);
                return Err(TooMuchKept::Namespace(self.namespace.namespace.clone()));
            }
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.namespace.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clusters_that_take_much_are_refused() {
        let namespace = Arc::new(NamespaceKept::new("fleet"));
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
        drop(large);
        assert_eq!(other.set(MAX_CLUSTER), Ok(()));
        drop(other);
        assert_eq!(namespace.used.load(Ordering::Relaxed), 0);
    }
}
