//! Which clusters of a placement have to be reconciled, so that one cluster's change costs one cluster's work.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use chandler_core::{identity::ClusterKey, placement::PlacementKind};
use kube::runtime::reflector::ObjectRef;

use crate::{
    queue::RESYNC,
    sync::{Mutex, MutexGuard},
};

/// The clusters of a placement that a reconcile is about. It brings the status up to date in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Clusters(HashSet<ClusterKey>),
}

impl Scope {
    /// No cluster, only the status.
    pub fn status() -> Self {
        Self::Clusters(HashSet::new())
    }

    /// The word for it in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Clusters(some) if some.is_empty() => "none",
            Self::Clusters(_) => "some",
        }
    }

    pub fn contains(&self, cluster: &ClusterKey) -> bool {
        match self {
            Self::All => true,
            Self::Clusters(some) => some.contains(cluster),
        }
    }
}

/// What is to be done and what is remembered, per placement. Clones share.
pub struct Pending<P: PlacementKind>(Arc<Mutex<HashMap<ObjectRef<P>, Entry>>>);

#[derive(Default)]
struct Entry {
    /// `None`: no event has asked for the reconcile, so a timer has: it is about everything.
    scope: Option<Scope>,
    /// Clusters that every reconcile is about, because the last one could not do there what it should.
    unfinished: HashSet<ClusterKey>,
    /// When everything was reconciled last.
    complete: Option<Instant>,
    /// Clusters whose template fails.
    failing: BTreeMap<ClusterKey, String>,
}

impl<P: PlacementKind> Clone for Pending<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: PlacementKind> Default for Pending<P> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<P: PlacementKind> Pending<P> {
    /// Adds to what the next reconcile of the placement is about.
    pub fn add(&self, placement: &ObjectRef<P>, scope: &Scope) {
        let mut entries = self.lock();
        match (&mut entries.entry(placement.clone()).or_default().scope, scope) {
            (Some(Scope::All), _) => {}
            (Some(Scope::Clusters(some)), Scope::Clusters(more)) => some.extend(more.iter().cloned()),
            (pending, scope) => *pending = Some(scope.clone()),
        }
    }

    /// Takes what the reconcile that begins now is about.
    pub fn take(&self, placement: &ObjectRef<P>) -> Scope {
        let mut entries = self.lock();
        let entry = entries.entry(placement.clone()).or_default();
        let overdue = entry.complete.is_none_or(|complete| complete.elapsed() >= RESYNC);
        match entry.scope.take().filter(|_| !overdue) {
            Some(Scope::Clusters(mut some)) => {
                some.extend(entry.unfinished.iter().cloned());
                Scope::Clusters(some)
            }
            Some(Scope::All) | None => {
                entry.complete = Some(Instant::now());
                Scope::All
            }
        }
    }

    /// Remembers the clusters where a reconcile could not do what it should: the next one tries again, and reports them.
    pub fn unfinished(&self, placement: &ObjectRef<P>, clusters: HashSet<ClusterKey>) {
        self.lock().entry(placement.clone()).or_default().unfinished = clusters;
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

    fn one(cluster: &str) -> Scope {
        Scope::Clusters(HashSet::from([ClusterKey::new("fleet", cluster)]))
    }

    #[test]
    fn marks_add_up_and_are_taken_once() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        assert_eq!(pending.take(&placement), Scope::All, "the first reconcile is about everything");
        pending.add(&placement, &one("blue"));
        pending.add(&placement, &one("green"));
        pending.add(&placement, &Scope::status());
        assert!(matches!(pending.take(&placement), Scope::Clusters(some) if some.len() == 2));
        pending.add(&placement, &Scope::status());
        assert_eq!(pending.take(&placement), Scope::status(), "the status alone is about no cluster");
        assert_eq!(pending.take(&placement), Scope::All, "a timer means everything");
        pending.add(&placement, &one("blue"));
        pending.add(&placement, &Scope::All);
        pending.add(&placement, &one("blue"));
        assert_eq!(pending.take(&placement), Scope::All);
    }

    #[test]
    fn unfinished_clusters_are_part_of_every_reconcile() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        assert_eq!(pending.take(&placement), Scope::All);
        pending.unfinished(&placement, HashSet::from([ClusterKey::new("fleet", "blue")]));
        for _ in 0..2 {
            pending.add(&placement, &Scope::status());
            assert_eq!(pending.take(&placement), one("blue"));
        }
        assert_eq!(pending.take(&placement), Scope::All, "a timer still means everything");
        pending.unfinished(&placement, HashSet::new());
        pending.add(&placement, &Scope::status());
        assert_eq!(pending.take(&placement), Scope::status());
    }

    #[test]
    fn failures_of_other_clusters_are_remembered() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        let failing = |names: &[&str]| {
            names
                .iter()
                .map(|name| (ClusterKey::new("fleet", *name), "bad".to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        pending.failing(&placement, &Scope::All, failing(&["blue", "green", "gone"]), |_| true);
        let left = pending.failing(&placement, &one("blue"), failing(&[]), |cluster| cluster.name != "gone");
        assert_eq!(left, failing(&["green"]));
    }
}
