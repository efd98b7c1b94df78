//! What the release objects of placements with a rollout are updated to, as far as it was composed since the start of the manager.
//! The rest of a rollout is derived from the release objects.

use std::collections::{BTreeSet, HashMap};

use chandler_core::{
    identity::{ClusterKey, ClusterMap},
    rollout::{Replaced, RolloutTarget},
};
use kube::runtime::reflector::ObjectRef;

use super::pending::ReconcileScope;
use crate::locks::Mutex;

/// The targets of each placement.
pub struct RolloutTargets<P: kube::Resource<DynamicType = ()>>(Mutex<HashMap<ObjectRef<P>, Targets>>);

/// The targets of the clusters of one placement.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub of_clusters: ClusterMap<RolloutTarget>,
    /// Clusters whose release object needs no rollout to get there. The watch may not show yet that it has got there.
    pub current: BTreeSet<ClusterKey>,
    /// Clusters whose target is not known at the moment.
    pub unknown: BTreeSet<ClusterKey>,
    /// An earlier package that cannot be composed any more, so that the newest one does not wait for it.
    pub abandoned: Option<String>,
    /// The releases that are being replaced, as recorded last: the watch may not show that yet.
    pub replaced: Option<Replaced>,
}

/// The targets of the clusters in the scope of a reconcile.
#[derive(Debug, Default)]
pub struct ComposedTargets {
    pub of_clusters: ClusterMap<RolloutTarget>,
    /// Clusters whose release object needs no rollout to get there.
    pub current: BTreeSet<ClusterKey>,
    /// Clusters without a target that are not paused and need no change by a user, and whether they will have one soon.
    pub missing: ClusterMap<bool>,
}

impl Targets {
    /// Returns whether a composed target is new, and others that were not composed may have changed like it.
    fn have_changed(&self, composed: &ComposedTargets) -> bool {
        let others = self.of_clusters.iter().filter(|(key, _)| !composed.of_clusters.contains_key(*key));
        let others: BTreeSet<_> = others.map(|(_, target)| target.update_key()).collect();
        composed.of_clusters.iter().any(|(cluster, new)| match self.of_clusters.get(cluster) {
            Some(old) => !old.is_same_update(new) && others.contains(&old.update_key()),
            None => !others.is_empty() && !others.contains(&new.update_key()),
        })
    }

    fn update(
        &mut self,
        scope: &ReconcileScope,
        composed: ComposedTargets,
        is_selected: impl Fn(&ClusterKey) -> bool,
    ) {
        let ComposedTargets { of_clusters, current, missing } = composed;
        let is_other = |cluster: &ClusterKey| !scope.contains(cluster) && is_selected(cluster);
        let mut replaced = ClusterMap::new();
        self.of_clusters.retain(|cluster, target| {
            let is_other = is_other(cluster);
            if !is_other {
                replaced.insert(cluster.clone(), target.clone());
            }
            is_other
        });
        self.of_clusters.extend(of_clusters);
        self.current.retain(is_other);
        self.current.extend(current);
        self.unknown.retain(is_other);
        // The last target still counts if the placement has not changed since.
        let updates: BTreeSet<_> = self.of_clusters.values().map(RolloutTarget::update_key).collect();
        replaced.retain(|cluster, target| {
            missing.contains_key(cluster) && updates.contains(&target.update_key())
        });
        self.of_clusters.extend(replaced);
        let soon = missing.into_iter().filter(|(_, is_soon)| *is_soon).map(|(cluster, _)| cluster);
        self.unknown.extend(soon.filter(|cluster| !self.of_clusters.contains_key(cluster)));
    }
}

impl<P: kube::Resource<DynamicType = ()>> Default for RolloutTargets<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P: kube::Resource<DynamicType = ()>> RolloutTargets<P> {
    /// Replaces the targets of the clusters in `scope`, and removes those of clusters that are not selected.
    pub fn update(
        &self,
        placement: &ObjectRef<P>,
        scope: &ReconcileScope,
        composed: ComposedTargets,
        is_selected: impl Fn(&ClusterKey) -> bool,
    ) {
        self.0.lock().entry(placement.clone()).or_default().update(scope, composed, is_selected);
    }

    pub fn get(&self, placement: &ObjectRef<P>) -> Targets {
        self.0.lock().get(placement).cloned().unwrap_or_default()
    }

    /// Records that an earlier package cannot be composed any more.
    pub fn abandon(&self, placement: &ObjectRef<P>, package: &str) {
        self.0.lock().entry(placement.clone()).or_default().abandoned = Some(package.to_owned());
    }

    /// Records which releases are being replaced.
    pub fn set_replaced(&self, placement: &ObjectRef<P>, replaced: Replaced) {
        self.0.lock().entry(placement.clone()).or_default().replaced = Some(replaced);
    }

    /// Returns whether a composed target shows that something has changed that clusters share which were not composed.
    pub fn have_changed(&self, placement: &ObjectRef<P>, composed: &ComposedTargets) -> bool {
        self.0.lock().get(placement).is_some_and(|known| known.have_changed(composed))
    }

    /// Removes a deleted placement, or one without a rollout.
    pub fn forget(&self, placement: &ObjectRef<P>) {
        self.0.lock().remove(placement);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use chandler_api::addons::HelmChartProxy;

    use super::*;

    fn key(name: &str) -> ClusterKey {
        ClusterKey::new("fleet", name)
    }

    fn composed(names: &[&str], package: &str) -> ComposedTargets {
        let (spec, package) = ("s1".to_owned(), package.to_owned());
        let target = RolloutTarget { spec, package, ..RolloutTarget::default() };
        let of_clusters = names.iter().map(|name| (key(name), target.clone())).collect();
        ComposedTargets { of_clusters, ..ComposedTargets::default() }
    }

    fn packages(targets: &Targets) -> Vec<(&str, &str)> {
        let of_clusters = targets.of_clusters.iter();
        of_clusters.map(|(key, target)| (key.name.as_str(), target.package.as_str())).collect()
    }

    #[test]
    fn targets_of_other_clusters_are_kept() {
        let all = RolloutTargets::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello").within("fleet");
        let with_current = |composed, name| ComposedTargets { current: [key(name)].into(), ..composed };
        let first = with_current(composed(&["a", "b", "c"], "1"), "b");
        all.update(&placement, &ReconcileScope::All, first, |_| true);
        assert_eq!(all.get(&placement).current, [key("b")].into());
        let scope = ReconcileScope::Clusters(HashSet::from(["a", "b"].map(key)));
        all.update(&placement, &scope, with_current(composed(&["a"], "2"), "a"), |_| true);
        assert_eq!(all.get(&placement).current, [key("a")].into());
        assert_eq!(packages(&all.get(&placement)), [("a", "2"), ("c", "1")], "b is paused");
        all.update(&placement, &ReconcileScope::status(), ComposedTargets::default(), |key| key.name == "a");
        assert_eq!(packages(&all.get(&placement)), [("a", "2")]);
        all.abandon(&placement, "1");
        assert_eq!(all.get(&placement).abandoned.as_deref(), Some("1"));
        all.forget(&placement);
        assert_eq!(packages(&all.get(&placement)), []);
    }

    #[test]
    fn what_one_cluster_shows_may_concern_the_others() {
        let all = RolloutTargets::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello").within("fleet");
        let changed = |composed: &ComposedTargets| all.have_changed(&placement, composed);
        assert!(!changed(&composed(&["a"], "2")), "nothing is known yet");
        all.update(&placement, &ReconcileScope::All, composed(&["a", "b"], "1"), |_| true);
        assert!(!changed(&composed(&["a"], "1")));
        assert!(changed(&composed(&["a"], "2")));
        assert!(!changed(&composed(&["a", "b"], "2")), "there are no others");
        assert!(changed(&composed(&["c"], "2")), "it was paused, and its target was not known");
        assert!(!changed(&composed(&["c"], "1")));
        let scope = ReconcileScope::Clusters(HashSet::from([key("a")]));
        all.update(&placement, &scope, composed(&["a"], "3"), |_| true);
        assert!(!changed(&composed(&["a"], "2")), "it has a package of its own");
    }

    #[test]
    fn a_target_that_cannot_be_composed_is_the_last_one_or_unknown() {
        let known_targets = |names: &[&str]| composed(names, "1");
        let after = |known: &[&str], composed: ComposedTargets, missing: &[(&str, bool)]| {
            let mut targets = Targets::default();
            let first = known_targets(known);
            targets.update(&ReconcileScope::All, first, |_| true);
            let missing = missing.iter().map(|(name, is_soon)| (key(name), *is_soon)).collect();
            targets.update(&ReconcileScope::All, ComposedTargets { missing, ..composed }, |_| true);
            targets
        };
        let same = after(&["a", "b"], composed(&["b"], "1"), &[("a", true)]);
        assert_eq!(packages(&same), [("a", "1"), ("b", "1")], "nothing has changed");
        assert_eq!(same.unknown, BTreeSet::new());
        let changed = after(&["a", "b"], composed(&["b"], "2"), &[("a", true)]);
        assert_eq!((packages(&changed), changed.unknown.clone()), (vec![("b", "2")], [key("a")].into()));
        let restarted = after(&[], composed(&["b"], "1"), &[("a", true)]);
        assert_eq!((packages(&restarted), restarted.unknown.clone()), (vec![("b", "1")], [key("a")].into()));
        let waiting = after(&["b"], composed(&["b"], "1"), &[("a", false)]);
        assert_eq!((packages(&waiting), waiting.unknown.clone()), (vec![("b", "1")], BTreeSet::new()));
        let mut again = after(&[], ComposedTargets::default(), &[("a", true), ("b", true)]);
        again.update(&ReconcileScope::All, composed(&["a", "b"], "1"), |_| true);
        assert_eq!(again.unknown, BTreeSet::new());
    }
}
