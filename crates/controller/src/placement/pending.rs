//! The scope of the next reconcile of each placement, so that a change of one cluster reconciles that cluster only.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::{identity::ClusterKey, placement::PlacementKind};
use kube::runtime::reflector::ObjectRef;

use crate::{
    locks::{Mutex, MutexGuard},
    queue::RESYNC,
    routing::Revision,
};

/// How long the creation of a release object has to be confirmed after its deletion: longer than any watch can be silent, and than
/// paused Clusters are not reconciled.
const CONFIRM_FOR: Duration = Duration::from_mins(30);

/// The clusters of a placement to reconcile. The status is updated in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileScope {
    All,
    Clusters(HashSet<ClusterKey>),
}

impl ReconcileScope {
    /// Returns the scope without clusters, for the status only.
    pub fn status() -> Self {
        Self::Clusters(HashSet::new())
    }

    /// Returns the label value for metrics.
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

/// Pending work and state per placement. Clones share it.
pub struct Pending<P: PlacementKind>(Arc<Mutex<HashMap<ObjectRef<P>, Entry>>>);

#[derive(Default)]
struct Entry {
    /// `None` means that a timer triggers the reconcile, whose scope is all clusters.
    scope: Option<ReconcileScope>,
    /// Clusters that every reconcile includes, because the last one could not finish them.
    unfinished: HashSet<ClusterKey>,
    /// When all clusters were reconciled last.
    complete: Option<Instant>,
    /// The revision of the placement that was applied to all clusters.
    applied: Option<Revision>,
    /// Clusters whose release object cannot be composed, and why.
    failing: BTreeMap<ClusterKey, String>,
    /// Clusters that may have had a release object, so that it is created only if that is confirmed, and since when.
    unconfirmed: HashMap<ClusterKey, Instant>,
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
    /// Extends the scope of the next reconcile of a placement.
    pub fn add(&self, placement: &ObjectRef<P>, scope: &ReconcileScope) {
        let mut entries = self.lock();
        match (&mut entries.entry(placement.clone()).or_default().scope, scope) {
            (Some(ReconcileScope::All), _) => {}
            (Some(ReconcileScope::Clusters(some)), ReconcileScope::Clusters(more)) => {
                some.extend(more.iter().cloned());
            }
            (pending, scope) => *pending = Some(scope.clone()),
        }
    }

    /// Takes the scope of the reconcile that starts now, of this revision of the placement. It is all clusters until the revision
    /// has been applied: an earlier reconcile may have taken the scope of the change, but not yet seen the change itself.
    pub fn take(&self, placement: &ObjectRef<P>, revision: Revision) -> ReconcileScope {
        let mut entries = self.lock();
        let entry = entries.entry(placement.clone()).or_default();
        let is_applied = entry.applied == Some(revision);
        let overdue = entry.complete.is_none_or(|complete| complete.elapsed() >= RESYNC);
        match entry.scope.take().filter(|_| is_applied && !overdue) {
            Some(ReconcileScope::Clusters(mut some)) => {
                some.extend(entry.unfinished.iter().cloned());
                ReconcileScope::Clusters(some)
            }
            Some(ReconcileScope::All) | None => {
                entry.complete = Some(Instant::now());
                entry.unconfirmed.retain(|_, since| since.elapsed() < CONFIRM_FOR);
                ReconcileScope::All
            }
        }
    }

    /// Records that a revision of the placement has been applied to all clusters, as far as possible.
    pub fn record_applied(&self, placement: &ObjectRef<P>, revision: Revision) {
        self.lock().entry(placement.clone()).or_default().applied = Some(revision);
    }

    /// Returns whether a revision of the placement has been applied to all clusters.
    pub fn is_applied(&self, placement: &ObjectRef<P>, revision: Revision) -> bool {
        self.lock().get(placement).is_some_and(|entry| entry.applied == Some(revision))
    }

    /// Lets the next creation of a cluster's release object wait for a confirmation.
    pub fn require_confirmation(&self, placement: &ObjectRef<P>, cluster: ClusterKey) {
        // A placement without an entry has not been reconciled yet, or is deleted.
        if let Some(entry) = self.lock().get_mut(placement) {
            entry.unconfirmed.insert(cluster, Instant::now());
        }
    }

    /// Returns whether a cluster's release object is created only if that is confirmed.
    pub fn requires_confirmation(&self, placement: &ObjectRef<P>, cluster: &ClusterKey) -> bool {
        let entries = self.lock();
        let since = entries.get(placement).and_then(|entry| entry.unconfirmed.get(cluster));
        since.is_some_and(|since| since.elapsed() < CONFIRM_FOR)
    }

    /// Sets the clusters that a reconcile could not finish. The next one retries and reports them.
    pub fn unfinished(&self, placement: &ObjectRef<P>, clusters: HashSet<ClusterKey>) {
        self.lock().entry(placement.clone()).or_default().unfinished = clusters;
    }

    /// Updates the failing clusters in `scope` and returns all failing clusters that are still selected.
    pub fn failing(
        &self,
        placement: &ObjectRef<P>,
        scope: &ReconcileScope,
        now: BTreeMap<ClusterKey, String>,
        is_selected: impl Fn(&ClusterKey) -> bool,
    ) -> BTreeMap<ClusterKey, String> {
        let mut entries = self.lock();
        let failing = &mut entries.entry(placement.clone()).or_default().failing;
        failing.retain(|cluster, _| is_selected(cluster) && !scope.contains(cluster));
        failing.extend(now);
        failing.clone()
    }

    /// Removes a deleted placement.
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

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn revision(generation: i64) -> Revision {
        Revision::of(&ObjectMeta { generation: Some(generation), ..ObjectMeta::default() })
    }

    fn one(cluster: &str) -> ReconcileScope {
        ReconcileScope::Clusters(HashSet::from([ClusterKey::new("fleet", cluster)]))
    }

    #[test]
    fn scopes_add_up_and_are_taken_once() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        assert_eq!(
            pending.take(&placement, revision(1)),
            ReconcileScope::All,
            "the first reconcile includes all clusters"
        );
        pending.record_applied(&placement, revision(1));
        pending.add(&placement, &one("blue"));
        pending.add(&placement, &one("green"));
        pending.add(&placement, &ReconcileScope::status());
        assert!(
            matches!(pending.take(&placement, revision(1)), ReconcileScope::Clusters(some) if some.len() == 2)
        );
        pending.add(&placement, &ReconcileScope::status());
        assert_eq!(
            pending.take(&placement, revision(1)),
            ReconcileScope::status(),
            "the status includes no cluster"
        );
        assert_eq!(
            pending.take(&placement, revision(1)),
            ReconcileScope::All,
            "a timer includes all clusters"
        );
        pending.add(&placement, &one("blue"));
        pending.add(&placement, &ReconcileScope::All);
        pending.add(&placement, &one("blue"));
        assert_eq!(pending.take(&placement, revision(1)), ReconcileScope::All);
    }

    #[test]
    fn confirmations_are_required_of_placements_that_are_reconciled() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        let blue = ClusterKey::new("fleet", "blue");
        pending.require_confirmation(&placement, blue.clone());
        assert!(!pending.requires_confirmation(&placement, &blue), "the placement is unknown");
        pending.take(&placement, revision(1));
        pending.require_confirmation(&placement, blue.clone());
        assert!(pending.requires_confirmation(&placement, &blue));
        assert!(!pending.requires_confirmation(&placement, &ClusterKey::new("fleet", "green")));
        pending.forget(&placement);
        assert!(!pending.requires_confirmation(&placement, &blue));
    }

    #[test]
    fn unfinished_clusters_are_part_of_every_reconcile() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        assert_eq!(pending.take(&placement, revision(1)), ReconcileScope::All);
        pending.record_applied(&placement, revision(1));
        pending.unfinished(&placement, HashSet::from([ClusterKey::new("fleet", "blue")]));
        for _ in 0..2 {
            pending.add(&placement, &ReconcileScope::status());
            assert_eq!(pending.take(&placement, revision(1)), one("blue"));
        }
        assert_eq!(
            pending.take(&placement, revision(1)),
            ReconcileScope::All,
            "a timer still includes all clusters"
        );
        pending.unfinished(&placement, HashSet::new());
        pending.add(&placement, &ReconcileScope::status());
        assert_eq!(pending.take(&placement, revision(1)), ReconcileScope::status());
    }

    #[test]
    fn only_the_revision_that_was_applied_counts() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        assert!(!pending.is_applied(&placement, revision(1)), "nothing is known after a start");
        pending.record_applied(&placement, revision(1));
        assert!(pending.is_applied(&placement, revision(1)));
        assert!(!pending.is_applied(&placement, revision(2)), "the placement has changed");
    }

    #[test]
    fn a_change_is_applied_although_another_reconcile_has_taken_its_scope() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        pending.add(&placement, &ReconcileScope::All);
        assert_eq!(pending.take(&placement, revision(1)), ReconcileScope::All, "with the object of before");
        pending.record_applied(&placement, revision(1));
        pending.add(&placement, &ReconcileScope::status());
        assert_eq!(pending.take(&placement, revision(2)), ReconcileScope::All);
    }

    #[test]
    fn failures_of_other_clusters_are_kept() {
        let (pending, placement) =
            (Pending::<HelmChartProxy>::default(), ObjectRef::new("hello").within("fleet"));
        let failing = |names: &[&str]| {
            names
                .iter()
                .map(|name| (ClusterKey::new("fleet", *name), "bad".to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        pending.failing(&placement, &ReconcileScope::All, failing(&["blue", "green", "gone"]), |_| true);
        let left = pending.failing(&placement, &one("blue"), failing(&[]), |cluster| cluster.name != "gone");
        assert_eq!(left, failing(&["green"]));
    }
}
