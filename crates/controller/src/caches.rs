//! Caches of the watched objects, with lookups of release objects by placement, cluster and release.

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{
    cluster_conditions::{Addon, NOT_INSTALLED},
    identity::{ClusterKey, ReleaseId},
    naming,
    placement::PlacementKind,
    release::{Claimant, ReleaseKind},
};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{
    metrics::ReleaseCounts,
    release,
    routing::{ObjectKey, SharedIndex},
    status,
};

/// The release objects of one kind. Clones share the cache.
pub struct ReleaseCache<R: ReleaseKind> {
    index: SharedIndex,
    store: Store<R>,
}

impl<R: ReleaseKind> Clone for ReleaseCache<R> {
    fn clone(&self) -> Self {
        Self { index: self.index.clone(), store: self.store.clone() }
    }
}

impl<R: ReleaseKind> ReleaseCache<R> {
    pub fn new(index: SharedIndex, store: Store<R>) -> Self {
        Self { index, store }
    }

    /// Returns the current version of a release object.
    pub fn by_reference(&self, object: &ObjectRef<R>) -> Option<Arc<R>> {
        self.store.get(object)
    }

    /// Returns the release objects of a placement, by its namespace and the value of the owner label.
    pub fn of_owner(&self, namespace: &str, owner: &str) -> Vec<Arc<R>> {
        let keys = self.index.lock().of_owner(status::kind::<R>(), namespace, owner);
        self.get(&keys)
    }

    /// Returns the release objects of a placement on a cluster of its namespace.
    pub fn of_owner_on(&self, owner: &str, cluster: &ClusterKey) -> Vec<Arc<R>> {
        let keys = self.index.lock().of_owner_on(status::kind::<R>(), owner, cluster);
        self.get(&keys)
    }

    /// Returns the release objects of a cluster.
    pub fn on_cluster(&self, cluster: &ClusterKey) -> Vec<Arc<R>> {
        let keys = self.index.lock().on(status::kind::<R>(), cluster);
        self.get(&keys)
    }

    /// Returns the release objects that claim a release on a cluster.
    pub fn claiming(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Arc<R>> {
        let keys = self.index.lock().claiming(status::kind::<R>(), cluster, release);
        self.get(&keys)
    }

    fn get(&self, keys: &[ObjectKey]) -> Vec<Arc<R>> {
        keys.iter().filter_map(|key| self.store.get(&key.reference())).collect()
    }
}

/// The placements and release objects of all kinds. Clones share the caches.
#[derive(Clone)]
pub struct AllKinds {
    index: SharedIndex,
    pairs: Arc<Vec<Box<dyn PairCaches>>>,
}

impl AllKinds {
    pub fn new(index: SharedIndex, pairs: Vec<Box<dyn PairCaches>>) -> Self {
        Self { index, pairs: Arc::new(pairs) }
    }

    /// Returns the release objects that claim a release. More than one is a collision.
    pub fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant> {
        self.pairs.iter().flat_map(|pair| pair.claimants(cluster, release)).collect()
    }

    /// Returns whether any release object is on this cluster.
    pub fn uses(&self, cluster: &ClusterKey) -> bool {
        self.index.lock().uses(cluster)
    }

    /// Returns the uids of a cluster's release objects, with the names of their releases.
    pub fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)> {
        self.pairs.iter().flat_map(|pair| pair.releases(cluster)).collect()
    }

    /// Counts the release objects of each kind by state.
    pub fn release_counts(&self) -> Vec<ReleaseCounts> {
        self.pairs.iter().map(|pair| pair.release_counts()).collect()
    }

    /// Returns the add-ons of a cluster and whether they are ready.
    pub fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon> {
        self.pairs.iter().flat_map(|pair| pair.addons(cluster, labels)).collect()
    }
}

/// The part of [`AllKinds`] that one kind of placements and its release objects contribute.
pub trait PairCaches: Send + Sync {
    fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant>;
    fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)>;
    fn release_counts(&self) -> ReleaseCounts;
    fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon>;
}

impl<P: PlacementKind> PairCaches for (Store<P>, ReleaseCache<P::Release>) {
    fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant> {
        self.1.claiming(cluster, release).iter().map(|object| release::claimant(&**object)).collect()
    }

    fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)> {
        let named = |release: Arc<P::Release>| Some((release.uid()?, release.desired().ok()?.release.name));
        self.1.on_cluster(cluster).into_iter().filter_map(named).collect()
    }

    fn release_counts(&self) -> ReleaseCounts {
        ReleaseCounts::of(&self.1.store.state())
    }

    fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon> {
        let releases = self.1.on_cluster(cluster);
        let selecting = self.0.state_filter(|placement| placement.selects(cluster, labels));
        let unplaced = selecting.iter().map(|placement| placement.name_any()).filter(|name| {
            let owner = naming::label_value(name);
            !releases.iter().any(|release| release.labels().get(P::OWNER_LABEL) == Some(&owner))
        });
        let unplaced = unplaced.map(|name| Addon::not_ready(&name, NOT_INSTALLED));
        releases.iter().map(|release| addon::<P>(release)).chain(unplaced).collect()
    }
}

fn addon<P: PlacementKind>(release: &P::Release) -> Addon {
    let name = release.labels().get(P::OWNER_LABEL).cloned().unwrap_or_else(|| release.name_any());
    Addon::of_release(&name, release.readiness())
}
