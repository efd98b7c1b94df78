//! Caches of the watched objects, with lookups of release objects by placement, cluster and release.

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{
    cluster_conditions::{Addon, NOT_INSTALLED},
    cluster_deletion::PendingUninstall,
    identity::{ClusterKey, ReleaseId},
    naming,
    placement::{KubernetesFollower, PlacementKind},
    policy::{ReleasePolicy, cycle_text, last_on_cluster_delete},
    release::{Claimant, ReleaseKind},
};
use futures::{FutureExt as _, future::BoxFuture};
use kube::{
    Client, Resource as _, ResourceExt as _,
    api::{ApiResource, Preconditions},
    runtime::reflector::{ObjectRef, Store},
};

use crate::{
    ManagementError,
    metrics::ReleaseCounts,
    policies::Policies,
    release,
    routing::{Dependency, ObjectKey, SharedIndex},
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

    /// Returns whether a placement has or had a release object on a cluster. After a new list of the watch, an object that is not in it
    /// is missing in the cache a moment before it is known as deleted.
    pub fn is_indexed(&self, owner: &str, cluster: &ClusterKey) -> bool {
        !self.index.lock().of_owner_on(status::kind::<R>(), owner, cluster).is_empty()
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

/// A release object that is deleted before its Cluster, because its release owns resources outside of the cluster.
#[derive(Clone, Debug)]
pub struct RemovedFirst {
    /// The name of its placement, and why it is not uninstalled yet.
    pub pending: PendingUninstall,
    pub kind: &'static str,
    pub resource: ApiResource,
    pub name: String,
    pub unchanged: Preconditions,
    pub deleting: bool,
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

    /// Returns whether a release object claims a release that the caches do not contain yet.
    pub async fn has_uncached_claimant(
        &self,
        client: &Client,
        cluster: &ClusterKey,
        release: &ReleaseId,
    ) -> Result<bool, ManagementError> {
        for pair in &*self.pairs {
            if pair.has_uncached_claimant(client, cluster, release).await? {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// Returns the release objects of a cluster that are deleted before it.
    pub fn removed_first(&self, cluster: &ClusterKey) -> Vec<RemovedFirst> {
        self.pairs.iter().flat_map(|pair| pair.removed_first(cluster)).collect()
    }

    /// Returns what the policy of a release's placement requires of others: the dependencies that are not ready, and the
    /// placements that have to be removed first, as far as their releases are `removed`.
    pub fn policy_order(
        &self,
        release: &ObjectKey,
        removed: impl Fn(&ObjectKey) -> bool,
    ) -> (Vec<String>, Vec<String>) {
        let index = self.index.lock();
        let (dependencies, dependents) = (index.dependencies(release), index.dependents(release));
        drop(index);
        let is_ready = |release: &ObjectKey| self.pairs.iter().any(|pair| pair.satisfies_dependents(release));
        let unmet = dependencies.iter().filter(|dependency| !dependency.releases.iter().any(is_ready));
        let needing = dependents.iter().filter(|dependent| dependent.releases.iter().any(&removed));
        (unmet.map(unmet_text).collect(), needing.map(|one| one.placement.to_string()).collect())
    }

    /// Returns whether a release object is removed before its Cluster, if that is being deleted. The others are left until it is
    /// gone.
    pub fn is_removed_first(&self, release: &ObjectKey) -> bool {
        self.pairs.iter().any(|pair| pair.is_removed_first(release))
    }

    /// Returns the add-ons of a cluster whose versions follow its Kubernetes version, except for those of Extensions. `labels` and
    /// `uid` are those of the Cluster.
    pub fn kubernetes_followers(
        &self,
        cluster: &ClusterKey,
        labels: &BTreeMap<String, String>,
        uid: Option<&str>,
    ) -> Vec<KubernetesFollower> {
        self.pairs.iter().flat_map(|pair| pair.kubernetes_followers(cluster, labels, uid)).collect()
    }

    /// Returns the add-ons of a cluster and whether they are ready.
    pub fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon> {
        self.pairs.iter().flat_map(|pair| pair.addons(cluster, labels)).collect()
    }
}

/// The part of [`AllKinds`] that one kind of placements and its release objects contribute.
pub trait PairCaches: Send + Sync {
    fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant>;
    fn has_uncached_claimant<'a>(
        &'a self,
        client: &'a Client,
        cluster: &'a ClusterKey,
        release: &'a ReleaseId,
    ) -> BoxFuture<'a, Result<bool, ManagementError>>;
    fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)>;
    fn release_counts(&self) -> ReleaseCounts;
    fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon>;
    fn kubernetes_followers(
        &self,
        cluster: &ClusterKey,
        labels: &BTreeMap<String, String>,
        uid: Option<&str>,
    ) -> Vec<KubernetesFollower>;
    fn removed_first(&self, cluster: &ClusterKey) -> Vec<RemovedFirst>;
    /// Returns whether a release object is being deleted, or is deleted before its Cluster. It is `false` for release objects of
    /// other kinds.
    fn is_removed_first(&self, release: &ObjectKey) -> bool;
    /// Returns whether the releases that depend on this one may proceed. It is `false` for release objects of other kinds.
    fn satisfies_dependents(&self, release: &ObjectKey) -> bool;
}

/// The placements of one kind, their release objects and their policies.
pub struct PairCache<P: PlacementKind> {
    pub placements: Store<P>,
    pub releases: ReleaseCache<P::Release>,
    pub policies: Policies,
}

impl<P: PlacementKind> PairCaches for PairCache<P> {
    fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant> {
        self.releases.claiming(cluster, release).iter().map(|object| release::claimant(&**object)).collect()
    }

    fn has_uncached_claimant<'a>(
        &'a self,
        client: &'a Client,
        cluster: &'a ClusterKey,
        release: &'a ReleaseId,
    ) -> BoxFuture<'a, Result<bool, ManagementError>> {
        async move {
            let cached = self.releases.claiming(cluster, release);
            release::has_uncached_claimant(client, cluster, release, &cached).await
        }
        .boxed()
    }

    fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)> {
        let named = |release: Arc<P::Release>| Some((release.uid()?, release.desired().ok()?.release.name));
        self.releases.on_cluster(cluster).into_iter().filter_map(named).collect()
    }

    fn release_counts(&self) -> ReleaseCounts {
        ReleaseCounts::of(&self.releases.store.state())
    }

    fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon> {
        let releases = self.releases.on_cluster(cluster);
        let selecting = self.placements.state_filter(|placement| placement.selects(cluster, labels));
        let unplaced = selecting.iter().map(|placement| placement.name_any()).filter(|name| {
            let owner = naming::label_value(name);
            !releases.iter().any(|release| release.labels().get(P::OWNER_LABEL) == Some(&owner))
        });
        let unplaced = unplaced.map(|name| Addon::not_ready(&name, NOT_INSTALLED));
        let placed =
            |release: &Arc<P::Release>| Addon::of_release(&addon_name::<P>(release), release.readiness());
        releases.iter().map(placed).chain(unplaced).collect()
    }

    fn kubernetes_followers(
        &self,
        cluster: &ClusterKey,
        labels: &BTreeMap<String, String>,
        uid: Option<&str>,
    ) -> Vec<KubernetesFollower> {
        let following = self.placements.state_filter(|placement| {
            placement.meta().deletion_timestamp.is_none()
                && placement.kubernetes_versions().is_some()
                && placement.selects(cluster, labels)
        });
        let follower = |placement: &Arc<P>| {
            let owner = naming::label_value(&placement.name_any());
            let releases = self.releases.of_owner_on(&owner, cluster);
            let release = releases.iter().find(|release| release.meta().deletion_timestamp.is_none());
            KubernetesFollower::new(&**placement, release.map(AsRef::as_ref), uid)
        };
        following.iter().filter_map(follower).collect()
    }

    fn removed_first(&self, cluster: &ClusterKey) -> Vec<RemovedFirst> {
        let releases = self.releases.on_cluster(cluster).into_iter();
        releases
            .filter(|release| self.removes_with_cluster(release))
            .map(|release| RemovedFirst {
                pending: PendingUninstall {
                    addon: addon_name::<P>(&release),
                    reason: release
                        .readiness()
                        .filter(|ready| ready.status != "True")
                        .map(|ready| ready.reason.clone()),
                },
                kind: status::kind::<P::Release>(),
                resource: ApiResource::erase::<P::Release>(&()),
                name: release.name_any(),
                unchanged: Preconditions { resource_version: release.resource_version(), uid: release.uid() },
                deleting: release.meta().deletion_timestamp.is_some(),
            })
            .collect()
    }

    fn is_removed_first(&self, release: &ObjectKey) -> bool {
        self.release(release).is_some_and(|release| {
            release.meta().deletion_timestamp.is_some() || self.removes_with_cluster(&release)
        })
    }

    fn satisfies_dependents(&self, release: &ObjectKey) -> bool {
        self.release(release).is_some_and(|release| release.satisfies_dependents())
    }
}

impl<P: PlacementKind> PairCache<P> {
    /// Returns a release object, unless it is of another kind.
    fn release(&self, key: &ObjectKey) -> Option<Arc<P::Release>> {
        let is_own = key.kind == status::kind::<P::Release>();
        is_own.then(|| self.releases.by_reference(&key.reference())).flatten()
    }

    /// Returns whether a release is uninstalled before its Cluster is deleted.
    fn removes_with_cluster(&self, release: &P::Release) -> bool {
        let placement = placement_of(&self.placements, release);
        let on_cluster_delete = match placement {
            Some(placement) => self.policies.of(&*placement).on_cluster_delete(release),
            None => last_on_cluster_delete(release),
        };
        let policy = ReleasePolicy { on_cluster_delete, ..ReleasePolicy::default() };
        release.desired().is_ok_and(|desired| desired.with_policy(&policy).remove_with_cluster)
    }
}

/// Returns the placement of a release object.
pub fn placement_of<P: PlacementKind>(placements: &Store<P>, release: &P::Release) -> Option<Arc<P>> {
    placements.get(&placement_ref::<P>(release)?)
}

/// Returns the placement that a release object names as its owner.
pub fn placement_ref<P: PlacementKind>(release: &P::Release) -> Option<ObjectRef<P>> {
    let kind = P::kind(&());
    let owner = release.owner_references().iter().find(|owner| owner.kind == kind)?;
    Some(ObjectRef::new(&owner.name).within(&release.namespace().unwrap_or_default()))
}

fn addon_name<P: PlacementKind>(release: &P::Release) -> String {
    release.labels().get(P::OWNER_LABEL).cloned().unwrap_or_else(|| release.name_any())
}

/// Returns a dependency that is not ready, for users.
fn unmet_text(dependency: &Dependency) -> String {
    let placement = &dependency.placement;
    match &dependency.cycle {
        _ if !dependency.exists => format!("{placement}, which does not exist"),
        Some(cycle) => format!("{placement}, which depends on it in turn ({})", cycle_text(cycle)),
        None => placement.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::{PlacementKindName, PlacementReference};

    use super::*;

    #[test]
    fn dependencies_that_are_not_ready_are_explained() {
        let [hello, cni] = ["hello", "cni"].map(|name| PlacementReference {
            kind: PlacementKindName::HelmChartProxy,
            name: name.to_owned(),
        });
        let found = Dependency { placement: cni.clone(), exists: true, releases: Vec::new(), cycle: None };
        assert_eq!(unmet_text(&found), "HelmChartProxy cni");
        let missing = Dependency { exists: false, ..found.clone() };
        assert_eq!(unmet_text(&missing), "HelmChartProxy cni, which does not exist");
        let cycle = vec![hello, cni];
        let text = cycle_text(&cycle);
        let cyclic = unmet_text(&Dependency { cycle: Some(cycle), ..found });
        assert_eq!(cyclic, format!("HelmChartProxy cni, which depends on it in turn ({text})"));
    }
}
