//! The index of watched objects, which decides what to enqueue for an event.

mod policies;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chandler_api::extensions::{Extension, ExtensionCatalog};
use chandler_core::{
    fleet::ClassKey,
    identity::{ClusterKey, ReleaseId},
};

pub use self::policies::Dependency;
use super::{
    Enqueue, ObjectKey,
    facts::{Cluster, Placement, Policy, Release},
};

type Keys = BTreeSet<ObjectKey>;
/// Objects to enqueue, without duplicates.
type Work = BTreeSet<Enqueue>;
/// A release on a cluster.
type Claim = (ClusterKey, ReleaseId);

/// Placements, release objects and Clusters, and the relations between them.
#[derive(Debug, Default)]
pub struct Index {
    /// The namespace whose Extensions and policies are available everywhere.
    platform: String,
    /// By namespace and key.
    placements: HashMap<String, BTreeMap<ObjectKey, Placement>>,
    /// By namespace and name.
    clusters: HashMap<String, BTreeMap<String, Cluster>>,
    policies: HashMap<ObjectKey, Policy>,
    releases: HashMap<ObjectKey, Release>,
    /// By the kind and namespace of the release objects and the label that names their placement.
    by_owner: HashMap<ObjectKey, Keys>,
    /// By the key of `by_owner` and the cluster.
    by_owner_on: HashMap<(ObjectKey, ClusterKey), Keys>,
    by_placement: HashMap<ObjectKey, Keys>,
    by_cluster: HashMap<ClusterKey, Keys>,
    by_claim: HashMap<Claim, Keys>,
}

impl Index {
    pub fn new(platform: &str) -> Self {
        Self { platform: platform.to_owned(), ..Self::default() }
    }

    /// Returns the release objects of a kind whose label names this placement.
    pub fn of_owner(&self, kind: &'static str, namespace: &str, owner: &str) -> Vec<ObjectKey> {
        keys(&self.by_owner, &ObjectKey::new(kind, namespace, owner)).cloned().collect()
    }

    /// Returns the release objects of a kind on a cluster whose label names this placement.
    pub fn of_owner_on(&self, kind: &'static str, owner: &str, cluster: &ClusterKey) -> Vec<ObjectKey> {
        let owner = ObjectKey::new(kind, &cluster.namespace, owner);
        keys(&self.by_owner_on, &(owner, cluster.clone())).cloned().collect()
    }

    /// Returns the release objects of a kind on a cluster.
    pub fn on(&self, kind: &'static str, cluster: &ClusterKey) -> Vec<ObjectKey> {
        keys(&self.by_cluster, cluster).filter(|release| release.kind == kind).cloned().collect()
    }

    /// Returns the release objects of a kind that claim a release. More than one of all kinds is a collision.
    pub fn claiming(&self, kind: &'static str, cluster: &ClusterKey, release: &ReleaseId) -> Vec<ObjectKey> {
        let claim = (cluster.clone(), release.clone());
        keys(&self.by_claim, &claim).filter(|release| release.kind == kind).cloned().collect()
    }

    /// Returns whether a release object of any kind is on a cluster.
    pub fn uses(&self, cluster: &ClusterKey) -> bool {
        self.by_cluster.contains_key(cluster)
    }

    /// Enqueues all clusters of a placement only if its generation, labels, annotations or deletion have changed. Its
    /// status is written by its own reconciles.
    pub fn on_placement(&mut self, now: &Placement) -> Vec<Enqueue> {
        let (key, mut work) = (now.key.clone(), Work::new());
        let own = self.placements.entry(key.namespace.clone()).or_default();
        let before = own.insert(key.clone(), now.clone());
        if before.as_ref().is_some_and(|before| before.revision == now.revision) {
            return Vec::new();
        }
        // Its releases read this from the placement, and do not change with it.
        let is_same = |before: &Placement| {
            let flags = |one: &Placement| [one.paused, one.suspended, one.deleting, one.replaces_unsafe_crds];
            (flags(before), &before.policy, &before.aborted) == (flags(now), &now.policy, &now.aborted)
        };
        if before.as_ref().is_none_or(|before| !is_same(before)) {
            before.iter().chain([now]).for_each(|version| self.ordered_releases_of(version, &mut work));
        }
        self.policy_dependents(now, &mut work);
        work.insert(Enqueue::Placement(key));
        self.selected_by(now, &mut work);
        if let Some(before) = before {
            self.selected_by(&before, &mut work);
        }
        listed(work)
    }

    pub fn on_placement_deleted(&mut self, deleted: &Placement) -> Vec<Enqueue> {
        let Some(own) = self.placements.get_mut(&deleted.key.namespace) else { return Vec::new() };
        if own.get(&deleted.key).is_some_and(|known| known.uid == deleted.uid) {
            own.remove(&deleted.key);
        }
        let mut work = Work::new();
        self.policy_dependents(deleted, &mut work);
        self.selected_by(deleted, &mut work);
        listed(work)
    }

    /// A change of the status alone affects dependents and the status of the placement, but no release objects.
    pub fn on_release(&mut self, now: &Release) -> Vec<Enqueue> {
        let before = self.remove(&now.key);
        self.insert(now.clone());
        let mut work = Work::from([Enqueue::Release(now.key.clone())]);
        match before {
            Some(before) if before.revision == now.revision && before.placement == now.placement => {
                self.release_status_changed(now, &mut work);
            }
            before => {
                for version in before.iter().chain([now]) {
                    self.release_changed(version, &mut work);
                }
            }
        }
        listed(work)
    }

    pub fn on_release_deleted(&mut self, deleted: &Release) -> Vec<Enqueue> {
        if self.releases.get(&deleted.key).is_some_and(|known| known.uid == deleted.uid) {
            self.remove(&deleted.key);
        }
        let mut work = Work::new();
        self.release_changed(deleted, &mut work);
        listed(work)
    }

    /// A change of only the conditions that Chandler writes enqueues the Cluster itself and nothing else.
    pub fn on_cluster(&mut self, now: &Cluster) -> Vec<Enqueue> {
        let key = now.key.clone();
        let own = self.clusters.entry(key.namespace.clone()).or_default();
        let before = own.insert(key.name.clone(), now.clone());
        if before.as_ref().is_some_and(|before| before.revision == now.revision) {
            return vec![Enqueue::Cluster(key)];
        }
        let mut work = Work::new();
        for version in before.iter().chain([now]) {
            self.cluster_changed(version, |_| true, &mut work);
        }
        self.releases_on(&key, &mut work);
        listed(work)
    }

    pub fn on_cluster_deleted(&mut self, deleted: &Cluster) -> Vec<Enqueue> {
        if let Some(own) = self.clusters.get_mut(&deleted.key.namespace)
            && own.get(&deleted.key.name).is_some_and(|known| known.uid == deleted.uid)
        {
            own.remove(&deleted.key.name);
        }
        let mut work = Work::new();
        self.cluster_changed(deleted, |_| true, &mut work);
        self.releases_on(&deleted.key, &mut work);
        listed(work)
    }

    /// Templates can read the objects that a Cluster refers to, so their changes are handled like changes of the
    /// Cluster.
    pub fn on_reference(&self, cluster: &ClusterKey) -> Vec<Enqueue> {
        let Some(cluster) = self.cluster(cluster) else { return Vec::new() };
        let mut work = Work::new();
        self.cluster_changed(cluster, |_| true, &mut work);
        self.releases_on(&cluster.key, &mut work);
        listed(work)
    }

    /// Templates can read the class of a Cluster.
    pub fn on_class(&self, class: &ClassKey) -> Vec<Enqueue> {
        let all = self.clusters.values().flat_map(BTreeMap::values);
        let mut work = Work::new();
        for cluster in all.filter(|cluster| cluster.class.as_ref() == Some(class)) {
            self.cluster_changed(cluster, |_| true, &mut work);
        }
        listed(work)
    }

    /// Enqueues the placement in `namespace` with this uid, because objects that it reads parameters from have changed.
    pub fn on_parameter_sources(&self, namespace: &str, uid: &str) -> Vec<Enqueue> {
        let own = self.placements.get(namespace).into_iter().flat_map(BTreeMap::values);
        let reading = own.filter(|placement| placement.uid.as_deref() == Some(uid));
        reading.map(|placement| Enqueue::Placement(placement.key.clone())).collect()
    }

    pub fn on_resolution(&self, cluster: &ClusterKey) -> Vec<Enqueue> {
        let Some(cluster) = self.cluster(cluster) else { return Vec::new() };
        let mut work = Work::new();
        self.cluster_changed(cluster, |placement| placement.follows_extensions, &mut work);
        listed(work)
    }

    /// Extensions of the platform affect all namespaces.
    pub fn on_published(&self, namespace: &str) -> Vec<Enqueue> {
        let is_affected = |other: &str| namespace == self.platform || namespace == other;
        let placements = self.all_placements().filter(|placement| placement.follows_extensions);
        let placements = placements.filter(|placement| is_affected(&placement.key.namespace));
        let clusters = self.clusters.iter().filter(|(other, _)| is_affected(other));
        let clusters = clusters.flat_map(|(_, own)| own.values());
        let placements = placements.map(|placement| Enqueue::Placement(placement.key.clone()));
        placements.chain(clusters.map(|cluster| Enqueue::Cluster(cluster.key.clone()))).collect()
    }

    pub fn on_catalogs(&self) -> Vec<Enqueue> {
        let mut work: Work = self.on_source().into_iter().collect();
        for placement in self.all_placements().filter(|placement| !placement.catalogs.is_empty()) {
            work.insert(Enqueue::Placement(placement.key.clone()));
            self.selected_by(placement, &mut work);
        }
        listed(work)
    }

    /// Handles a change of AddonTenancies, which may apply to everything.
    pub fn on_tenancies(&self) -> Vec<Enqueue> {
        let placements = self.all_placements().map(|placement| Enqueue::Placement(placement.key.clone()));
        placements.chain(self.releases.keys().cloned().map(Enqueue::Release)).collect()
    }

    /// Handles other revisions of Sources. `namespaces` are those with Extensions whose packages are made of files of Sources.
    pub fn on_revisions(&self, namespaces: &BTreeSet<String>) -> Vec<Enqueue> {
        let of_platform = namespaces.contains(&self.platform);
        let is_affected = |placement: &&Placement| {
            let by_extension = of_platform || namespaces.contains(&placement.key.namespace);
            placement.follows_sources || placement.follows_extensions && by_extension
        };
        let placements = self.all_placements().filter(is_affected);
        placements.map(|placement| Enqueue::Placement(placement.key.clone())).collect()
    }

    /// Handles catalogs that have changed or were read at other revisions of their Sources. `extensions` are those with packages
    /// of these catalogs.
    pub fn on_catalog_revisions(&self, catalogs: &Keys, extensions: &Keys) -> Vec<Enqueue> {
        let is_affected = |placement: &&Placement| {
            let own = &placement.key.namespace;
            let catalog = |name| ObjectKey::referenced::<ExtensionCatalog>(name, own, &self.platform);
            let extension = |name| ObjectKey::referenced::<Extension>(name, own, &self.platform);
            placement.catalogs.iter().map(catalog).any(|catalog| catalogs.contains(&catalog))
                || placement.extension.iter().map(extension).any(|extension| extensions.contains(&extension))
        };
        let placements = self.all_placements().filter(is_affected);
        placements.map(|placement| Enqueue::Placement(placement.key.clone())).collect()
    }

    pub fn on_source(&self) -> Vec<Enqueue> {
        let following = self.releases.values().filter(|release| release.follows_sources);
        following.map(|release| Enqueue::Release(release.key.clone())).collect()
    }

    pub fn on_inventory(&self, cluster: &ClusterKey, release: Option<&ReleaseId>) -> Vec<Enqueue> {
        let mut work = Work::new();
        match release {
            Some(release) => self.claimants(&(cluster.clone(), release.clone()), &mut work),
            None => self.releases_on(cluster, &mut work),
        }
        listed(work)
    }

    /// Enqueues the Cluster itself and the placements that `filter` accepts and that select the cluster or have a
    /// release on it.
    fn cluster_changed(&self, cluster: &Cluster, filter: impl Fn(&Placement) -> bool, work: &mut Work) {
        let key = &cluster.key;
        let own = self.placements.get(&key.namespace);
        let selecting = own.into_iter().flat_map(BTreeMap::values);
        let selecting = selecting.filter(|placement| filter(placement) && placement.selects(cluster));
        work.extend(selecting.map(|one| Enqueue::PlacementCluster(one.key.clone(), key.clone())));
        let placed = keys(&self.by_cluster, key).filter_map(|release| self.releases.get(release));
        let placed = placed.filter_map(|release| release.placement.as_ref());
        let is_accepted = |placement: &ObjectKey| own.and_then(|own| own.get(placement)).is_none_or(&filter);
        let placed = placed.filter(|(placement, _)| is_accepted(placement));
        work.extend(placed.map(|(one, on)| Enqueue::PlacementCluster(one.clone(), on.clone())));
        work.insert(Enqueue::Cluster(key.clone()));
    }

    fn releases_on(&self, cluster: &ClusterKey, work: &mut Work) {
        work.extend(keys(&self.by_cluster, cluster).cloned().map(Enqueue::Release));
    }

    fn claimants(&self, claim: &Claim, work: &mut Work) {
        work.extend(keys(&self.by_claim, claim).cloned().map(Enqueue::Release));
    }

    /// Enqueues the Clusters that a placement selects, because their add-ons have changed.
    fn selected_by(&self, placement: &Placement, work: &mut Work) {
        let own = self.clusters.get(&placement.key.namespace).into_iter().flat_map(BTreeMap::values);
        let selected = own.filter(|cluster| placement.selects(cluster));
        work.extend(selected.map(|cluster| Enqueue::Cluster(cluster.key.clone())));
    }

    /// Handles a release object that was added, removed, or changed in more than its status.
    fn release_changed(&self, release: &Release, work: &mut Work) {
        if let Some((placement, cluster)) = &release.placement {
            work.insert(Enqueue::PlacementCluster(placement.clone(), cluster.clone()));
        }
        if let Some(claim) = &release.claim {
            self.claimants(claim, work);
            work.insert(Enqueue::Cluster(claim.0.clone()));
        }
        for neighbor in self.neighbors(release) {
            work.insert(Enqueue::Release(neighbor.key.clone()));
            // A placement must not delete a release that others depend on. The order of policies is kept by finalizers.
            if let Some((placement, cluster)) =
                neighbor.placement.as_ref().filter(|_| neighbor.is_ordered_with(release))
            {
                work.insert(Enqueue::PlacementCluster(placement.clone(), cluster.clone()));
            }
        }
    }

    /// Handles a change of only the status of a release object.
    fn release_status_changed(&self, release: &Release, work: &mut Work) {
        if let Some((placement, _)) = &release.placement {
            work.insert(Enqueue::PlacementStatus(placement.clone()));
        }
        if let Some((cluster, _)) = &release.claim {
            work.insert(Enqueue::Cluster(cluster.clone()));
        }
        work.extend(self.neighbors(release).map(|neighbor| Enqueue::Release(neighbor.key.clone())));
    }

    /// Returns the releases of the same cluster that depend on this one, or that this one depends on.
    fn neighbors<'a>(&'a self, release: &'a Release) -> impl Iterator<Item = &'a Release> {
        let cluster = release.claim.as_ref().map(|(cluster, _)| cluster);
        let others = cluster.into_iter().flat_map(|cluster| keys(&self.by_cluster, cluster));
        let others = others.filter_map(|other| self.releases.get(other));
        others.filter(|other| other.is_ordered_with(release) || self.is_ordered_by_policy(other, release))
    }

    fn all_placements(&self) -> impl Iterator<Item = &Placement> {
        self.placements.values().flat_map(BTreeMap::values)
    }

    fn cluster(&self, key: &ClusterKey) -> Option<&Cluster> {
        self.clusters.get(&key.namespace)?.get(&key.name)
    }

    fn insert(&mut self, release: Release) {
        let key = &release.key;
        if let Some(owner) = owner(&release) {
            if let Some(cluster) = &release.cluster {
                let on = (owner.clone(), cluster.clone());
                self.by_owner_on.entry(on).or_default().insert(key.clone());
            }
            self.by_owner.entry(owner).or_default().insert(key.clone());
        }
        if let Some((placement, _)) = &release.placement {
            self.by_placement.entry(placement.clone()).or_default().insert(key.clone());
        }
        if let Some(claim) = &release.claim {
            self.by_cluster.entry(claim.0.clone()).or_default().insert(key.clone());
            self.by_claim.entry(claim.clone()).or_default().insert(key.clone());
        }
        self.releases.insert(key.clone(), release);
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Release> {
        let known = self.releases.remove(key)?;
        if let Some(owner) = owner(&known) {
            remove_from(&mut self.by_owner, &owner, key);
            if let Some(cluster) = &known.cluster {
                remove_from(&mut self.by_owner_on, &(owner, cluster.clone()), key);
            }
        }
        if let Some((placement, _)) = &known.placement {
            remove_from(&mut self.by_placement, placement, key);
        }
        if let Some(claim) = &known.claim {
            remove_from(&mut self.by_cluster, &claim.0, key);
            remove_from(&mut self.by_claim, claim, key);
        }
        Some(known)
    }
}

fn owner(release: &Release) -> Option<ObjectKey> {
    let owner = release.owner.as_ref()?;
    Some(ObjectKey::new(release.key.kind, release.key.namespace.clone(), owner.clone()))
}

fn keys<'a, K: Eq + std::hash::Hash>(
    table: &'a HashMap<K, Keys>,
    key: &K,
) -> impl Iterator<Item = &'a ObjectKey> {
    table.get(key).into_iter().flatten()
}

fn remove_from<K: Clone + Eq + std::hash::Hash>(table: &mut HashMap<K, Keys>, key: &K, object: &ObjectKey) {
    if let Some(keys) = table.get_mut(key) {
        keys.remove(object);
        if keys.is_empty() {
            table.remove(key);
        }
    }
}

fn listed(work: Work) -> Vec<Enqueue> {
    work.into_iter().collect()
}
