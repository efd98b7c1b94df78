//! Tracks which clusters are reachable with the kubeconfig in their Secret, and triggers reconciles on changes.

use std::collections::HashSet;

use futures::{Stream, stream};
use tokio::sync::watch;

use super::planes::ClusterKey;

/// The clusters that are reachable. The controllers share it, because they wait for each other.
pub(super) struct ReachableClusters {
    clusters: watch::Sender<HashSet<ClusterKey>>,
}

impl Default for ReachableClusters {
    fn default() -> Self {
        Self { clusters: watch::Sender::new(HashSet::new()) }
    }
}

impl ReachableClusters {
    pub(super) fn contains(&self, key: &ClusterKey) -> bool {
        self.clusters.borrow().contains(key)
    }

    pub(super) fn insert(&self, key: &ClusterKey) {
        self.clusters.send_if_modified(|clusters| clusters.insert(key.clone()));
    }

    pub(super) fn remove(&self, key: &ClusterKey) {
        self.clusters.send_modify(|clusters| {
            clusters.remove(key);
        });
    }

    /// Makes the controllers reconcile all objects.
    pub(super) fn reconcile_all(&self) {
        self.clusters.send_modify(|_| {});
    }

    pub(super) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        stream::unfold(self.clusters.subscribe(), |mut clusters| async move {
            clusters.changed().await.ok()?;
            Some(((), clusters))
        })
    }
}
