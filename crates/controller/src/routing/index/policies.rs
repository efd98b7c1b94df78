//! The policies of placements, and the order of releases that they require.

use std::collections::BTreeMap;

use chandler_api::extensions::{AddonPolicy, PlacementReference};
use chandler_core::{identity::ClusterKey, policy::find_cycle};

use super::{Index, ObjectKey, Placement, Release, Work, keys, listed};
use crate::routing::{Enqueue, facts::Policy};

/// A placement whose release on a cluster has to be ready first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub placement: PlacementReference,
    pub exists: bool,
    /// Its release objects on the cluster.
    pub releases: Vec<ObjectKey>,
    /// The cycle of dependencies from the dependent through this placement and back, if there is one.
    pub cycle: Option<Vec<PlacementReference>>,
}

/// A placement whose release on a cluster has to be removed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependent {
    pub placement: PlacementReference,
    /// Its release objects on the cluster.
    pub releases: Vec<ObjectKey>,
}

impl Index {
    /// Enqueues the releases of the placements that use a policy, if it has changed.
    pub fn on_policy(&mut self, now: &Policy) -> Vec<Enqueue> {
        if self.policies.get(&now.key).is_some_and(|known| known.revision == now.revision) {
            return Vec::new();
        }
        let mut work = Work::new();
        self.policy_changed(&now.key, &mut work);
        self.policies.insert(now.key.clone(), now.clone());
        self.policy_changed(&now.key, &mut work);
        listed(work)
    }

    pub fn on_policy_deleted(&mut self, deleted: &Policy) -> Vec<Enqueue> {
        if self.policies.get(&deleted.key).is_none_or(|known| known.uid != deleted.uid) {
            return Vec::new();
        }
        let mut work = Work::new();
        self.policy_changed(&deleted.key, &mut work);
        self.policies.remove(&deleted.key);
        listed(work)
    }

    /// Returns the placements that the policy of a release's placement depends on, as far as they select its cluster or do not
    /// exist.
    pub fn dependencies(&self, release: &ObjectKey) -> Vec<Dependency> {
        let Some((placement, cluster)) = self.placed(release) else { return Vec::new() };
        let all = self.depends_on(placement);
        all.filter_map(|dependency| self.dependency(placement, dependency, cluster)).collect()
    }

    fn dependency(
        &self,
        dependent: &Placement,
        placement: &PlacementReference,
        cluster: &ClusterKey,
    ) -> Option<Dependency> {
        let key = dependent.beside(placement);
        let known = self.placement(&key);
        let is_selected =
            known.is_none_or(|known| self.cluster(cluster).is_some_and(|cluster| known.selects(cluster)));
        if !is_selected {
            return None;
        }
        let is_own = |release: &&ObjectKey| {
            let placement = self.releases.get(*release).and_then(|release| release.placement.as_ref());
            placement.is_some_and(|(placement, _)| *placement == key)
        };
        Some(Dependency {
            placement: placement.clone(),
            exists: known.is_some(),
            releases: keys(&self.by_cluster, cluster).filter(is_own).cloned().collect(),
            cycle: self.cycle(dependent, placement),
        })
    }

    /// Returns the placements with a release on the same cluster whose policies depend on the placement of this release. Those
    /// that it depends on in turn are left out, because neither could be removed first.
    pub fn dependents(&self, release: &ObjectKey) -> Vec<Dependent> {
        let Some((placement, cluster)) = self.placed(release) else { return Vec::new() };
        let mut needing: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for key in keys(&self.by_cluster, cluster) {
            let Some((other, _)) = self.placed(key) else { continue };
            if self.requires(other, placement) && self.cycle(other, &placement.reference).is_none() {
                needing.entry(other.reference.clone()).or_default().push(key.clone());
            }
        }
        needing.into_iter().map(|(placement, releases)| Dependent { placement, releases }).collect()
    }

    /// Returns whether the policy of one release's placement depends on the placement of the other.
    pub(super) fn is_ordered_by_policy(&self, one: &Release, other: &Release) -> bool {
        let placement = |release: &Release| {
            let (placement, _) = release.placement.as_ref()?;
            self.placement(placement)
        };
        placement(one)
            .zip(placement(other))
            .is_some_and(|(one, other)| self.requires(one, other) || self.requires(other, one))
    }

    /// Enqueues the releases of the placements whose policies depend on this one.
    pub(super) fn policy_dependents(&self, placement: &Placement, work: &mut Work) {
        let own = self.placements.get(&placement.key.namespace);
        let others = own.into_iter().flat_map(BTreeMap::values);
        for other in others.filter(|other| self.requires(other, placement)) {
            self.releases_of(&other.key, work);
        }
    }

    /// Enqueues the releases of a placement, and those that its policy depends on: they cannot be removed before.
    pub(super) fn ordered_releases_of(&self, placement: &Placement, work: &mut Work) {
        self.releases_of(&placement.key, work);
        for dependency in self.depends_on(placement) {
            self.releases_of(&placement.beside(dependency), work);
        }
    }

    fn releases_of(&self, placement: &ObjectKey, work: &mut Work) {
        work.extend(keys(&self.by_placement, placement).cloned().map(Enqueue::Release));
    }

    /// Enqueues what depends on a policy: the releases of its placements, and their Clusters, whose deletion may have to wait for
    /// them.
    fn policy_changed(&self, policy: &ObjectKey, work: &mut Work) {
        for placement in self.all_placements() {
            if self.policy_key(placement).is_none_or(|used| used != *policy) {
                continue;
            }
            // Release objects may have waited for the rollout of the policy.
            work.insert(Enqueue::Placement(placement.key.clone()));
            self.ordered_releases_of(placement, work);
            let releases = keys(&self.by_placement, &placement.key);
            let clusters = releases.filter_map(|release| self.releases.get(release)?.cluster.clone());
            work.extend(clusters.map(Enqueue::Cluster));
        }
    }

    /// Returns whether the policy of a placement depends on another one of its namespace.
    fn requires(&self, placement: &Placement, other: &Placement) -> bool {
        placement.key.namespace == other.key.namespace
            && self.depends_on(placement).any(|dependency| *dependency == other.reference)
    }

    /// Returns the placements that the policy of a placement depends on. The placement itself is not one of them: a policy may be
    /// shared with the placements that it names.
    fn depends_on<'a>(&'a self, placement: &'a Placement) -> impl Iterator<Item = &'a PlacementReference> {
        let policy = self.policy_key(placement).and_then(|key| self.policies.get(&key));
        let all = policy.into_iter().flat_map(|policy| &policy.depends_on);
        all.filter(move |dependency| **dependency != placement.reference)
    }

    /// Returns the cycle from a placement through one that it depends on and back.
    fn cycle(
        &self,
        dependent: &Placement,
        dependency: &PlacementReference,
    ) -> Option<Vec<PlacementReference>> {
        find_cycle(&dependent.reference, |at| {
            if *at == dependent.reference {
                return vec![dependency.clone()];
            }
            let placement = self.placement(&dependent.beside(at));
            placement.map(|placement| self.depends_on(placement).cloned().collect()).unwrap_or_default()
        })
    }

    fn policy_key(&self, placement: &Placement) -> Option<ObjectKey> {
        let reference = placement.policy.as_ref()?;
        Some(ObjectKey::referenced::<AddonPolicy>(reference, &placement.key.namespace, &self.platform))
    }

    fn placement(&self, key: &ObjectKey) -> Option<&Placement> {
        self.placements.get(&key.namespace)?.get(key)
    }

    /// Returns the placement of a release, and the cluster.
    fn placed(&self, release: &ObjectKey) -> Option<(&Placement, &ClusterKey)> {
        let (placement, cluster) = self.releases.get(release)?.placement.as_ref()?;
        Some((self.placement(placement)?, cluster))
    }
}
