//! What the release objects of placements with a rollout move to, as far as it was composed since the start of the manager. The
//! rest of a rollout is derived from the release objects.

use std::collections::{BTreeSet, HashMap};

use chandler_core::{
    identity::{ClusterKey, ClusterMap},
    rollout::Target,
};
use kube::runtime::reflector::ObjectRef;

use super::pending::ReconcileScope;
use crate::locks::Mutex;

/// The targets of each placement.
pub struct Rollouts<P: kube::Resource<DynamicType = ()>>(Mutex<HashMap<ObjectRef<P>, Targets>>);

/// The targets of the clusters of one placement.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub of_clusters: ClusterMap<Target>,
    /// Clusters whose release object needs no rollout to get there. The watch may not show yet that it has got there.
    pub current: BTreeSet<ClusterKey>,
    /// An earlier package that cannot be composed any more, so that the newest one does not wait for it.
    pub abandoned: Option<String>,
}

impl<P: kube::Resource<DynamicType = ()>> Default for Rollouts<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P: kube::Resource<DynamicType = ()>> Rollouts<P> {
    /// Replaces the targets of the clusters in `scope`, and removes those of clusters that are not selected. `current` are the
    /// clusters in `scope` that need no rollout.
    pub fn update(
        &self,
        placement: &ObjectRef<P>,
        scope: &ReconcileScope,
        composed: ClusterMap<Target>,
        current: BTreeSet<ClusterKey>,
        is_selected: impl Fn(&ClusterKey) -> bool,
    ) {
        let mut all = self.0.lock();
        let targets = all.entry(placement.clone()).or_default();
        targets.of_clusters.retain(|cluster, _| !scope.contains(cluster) && is_selected(cluster));
        targets.of_clusters.extend(composed);
        targets
            .current
            .retain(|cluster| targets.of_clusters.contains_key(cluster) && !scope.contains(cluster));
        targets.current.extend(current);
    }

    pub fn get(&self, placement: &ObjectRef<P>) -> Targets {
        self.0.lock().get(placement).cloned().unwrap_or_default()
    }

    /// Records that an earlier package cannot be composed any more.
    pub fn abandon(&self, placement: &ObjectRef<P>, package: &str) {
        self.0.lock().entry(placement.clone()).or_default().abandoned = Some(package.to_owned());
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

    fn targets(names: &[&str], package: &str) -> ClusterMap<Target> {
        let target = || Target { spec: "s1".to_owned(), package: package.to_owned(), kubernetes: None };
        names.iter().map(|name| (ClusterKey::new("fleet", *name), target())).collect()
    }

    fn current(name: &str) -> BTreeSet<ClusterKey> {
        BTreeSet::from([ClusterKey::new("fleet", name)])
    }

    #[test]
    fn targets_of_other_clusters_are_kept() {
        let rollouts = Rollouts::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello").within("fleet");
        let packages = || -> Vec<(String, String)> {
            let targets = rollouts.get(&placement).of_clusters;
            targets.into_iter().map(|(key, target)| (key.name, target.package)).collect()
        };
        let pair = |name: &str, package: &str| (name.to_owned(), package.to_owned());
        rollouts.update(
            &placement,
            &ReconcileScope::All,
            targets(&["a", "b", "c"], "1"),
            current("b"),
            |_| true,
        );
        let some = HashSet::from(["a", "b"].map(|name| ClusterKey::new("fleet", name)));
        let scope = ReconcileScope::Clusters(some);
        assert_eq!(rollouts.get(&placement).current, current("b"));
        rollouts.update(&placement, &scope, targets(&["a"], "2"), current("a"), |_| true);
        assert_eq!(rollouts.get(&placement).current, current("a"));
        assert_eq!(packages(), [pair("a", "2"), pair("c", "1")], "b is paused");
        rollouts.update(&placement, &ReconcileScope::status(), ClusterMap::new(), BTreeSet::new(), |key| {
            key.name == "a"
        });
        assert_eq!(packages(), [pair("a", "2")]);
        rollouts.abandon(&placement, "1");
        assert_eq!(rollouts.get(&placement).abandoned.as_deref(), Some("1"));
        rollouts.forget(&placement);
        assert_eq!(packages(), []);
    }
}
