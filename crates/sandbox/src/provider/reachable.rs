//! Which clusters can be reached with the kubeconfig in their Secret, and who wants to know.

use std::collections::HashSet;

use futures::{Stream, stream};
use tokio::sync::watch;

use super::planes::ClusterKey;

/// Shared between the controllers, each of which waits for what the other does.
pub(super) struct Reachable {
    clusters: watch::Sender<HashSet<ClusterKey>>,
}

impl Default for Reachable {
    fn default() -> Self {
        Self { clusters: watch::Sender::new(HashSet::new()) }
    }
}

impl Reachable {
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

    /// Has the controllers look at everything again.
    pub(super) fn announce(&self) {
        self.clusters.send_modify(|_| {});
    }

    pub(super) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        stream::unfold(self.clusters.subscribe(), |mut clusters| async move {
            clusters.changed().await.ok()?;
            Some(((), clusters))
        })
    }
}
