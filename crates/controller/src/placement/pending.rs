//! Which clusters of a placement have to be looked at, so that one cluster's change costs one cluster's work.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use chandler_core::{identity::ClusterKey, placement::PlacementFace};
use kube::runtime::reflector::ObjectRef;

use crate::{
    queue::RESYNC,
    sync::{Mutex, MutexGuard},
};

/// What has to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Clusters(HashSet<ClusterKey>),
}

impl Scope {
    pub fn contains(&self, cluster: &ClusterKey) -> bool {
        match self {
            Self::All => true,
            Self::Clusters(some) => some.contains(cluster),
        }
    }
}

/// What is to be done and what is remembered, per placement. Clones share.
pub struct Dirty<P: PlacementFace>(Arc<Mutex<HashMap<ObjectRef<P>, Entry>>>);

#[derive(Default)]
struct Entry {
    /// None: nothing was marked, so whoever looks does so for a reason we do not know: everything.
    scope: Option<Scope>,
    /// When everything was looked at last.
    complete: Option<Instant>,
    /// Clusters whose template fails.
    failing: BTreeMap<ClusterKey, String>,
}

impl<P: PlacementFace> Clone for Dirty<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: PlacementFace> Default for Dirty<P> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<P: PlacementFace> Dirty<P> {
    /// Everything of the placement.
    pub fn all(&self, placement: &ObjectRef<P>) {
        self.lock().entry(placement.clone()).or_default().scope = Some(Scope::All);
    }

    /// One cluster of the placement.
    pub fn cluster(&self, placement: &ObjectRef<P>, cluster: &ClusterKey) {
        let mut entries = self.lock();
        match &mut entries.entry(placement.clone()).or_default().scope {
            Some(Scope::All) => {}
            Some(Scope::Clusters(some)) => {
                some.insert(cluster.clone());
            }
            scope @ None => *scope = Some(Scope::Clusters(HashSet::from([cluster.clone()]))),
        }
    }

    /// Takes what has to be looked at.
    pub fn take(&self, placement: &ObjectRef<P>) -> Scope {
        let mut entries = self.lock();
        let entry = entries.entry(placement.clone()).or_default();
        let overdue = entry.complete.is_none_or(|complete| complete.elapsed() >= RESYNC);
        let scope = entry.scope.take().filter(|_| !overdue).unwrap_or(Scope::All);
        if scope == Scope::All {
            entry.complete = Some(Instant::now());
        }
        scope
    }

    /// Remembers which of the clusters in `scope` fail; returns all that do, of those that are still wanted.
    pub fn failing(
        &self,
        placement: &ObjectRef<P>,
        scope: &Scope,
        now: BTreeMap<ClusterKey, String>,
        wanted: impl Fn(&ClusterKey) -> bool,
    ) -> BTreeMap<ClusterKey, String> {
        let mut entries = self.lock();
        let failing = &mut entries.entry(placement.clone()).or_default().failing;
        failing.retain(|cluster, _| wanted(cluster) && !scope.contains(cluster));
        failing.extend(now);
        failing.clone()
    }

    /// Forgets a placement that is gone.
    pub fn forget(&self, placement: &ObjectRef<P>) {
        self.lock().remove(placement);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<P>, Entry>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmChartProxy;

    use super::*;

    fn blue() -> ClusterKey {
        ClusterKey::new("fleet", "blue")
    }

    #[test]
    fn marks_add_up_and_are_taken_once() {
        let (dirty, placement) =
            (Dirty::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        assert_eq!(dirty.take(&placement), Scope::All, "the first look is at everything");
        dirty.cluster(&placement, &blue());
        dirty.cluster(&placement, &ClusterKey::new("fleet", "green"));
        assert!(matches!(dirty.take(&placement), Scope::Clusters(some) if some.len() == 2));
        assert_eq!(dirty.take(&placement), Scope::All, "a look that nobody asked for is at everything");
        dirty.all(&placement);
        dirty.cluster(&placement, &blue());
        assert_eq!(dirty.take(&placement), Scope::All);
    }

    #[test]
    fn failures_of_other_clusters_are_remembered() {
        let (dirty, placement) =
            (Dirty::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        let failing = |names: &[&str]| {
            names
                .iter()
                .map(|name| (ClusterKey::new("fleet", *name), "bad".to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        dirty.failing(&placement, &Scope::All, failing(&["blue", "green", "gone"]), |_| true);
        let only_blue = Scope::Clusters(HashSet::from([blue()]));
        let left = dirty.failing(&placement, &only_blue, failing(&[]), |cluster| cluster.name != "gone");
        assert_eq!(left, failing(&["green"]));
    }
}
