//! Confirms the changes of a placement before they are written, and lets it wait if its caches are outdated.

mod reads;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use chandler_core::{
    identity::{ClusterKey, ClusterMap},
    naming,
    placement::{Change, DeleteFailure, PlacementKind, PlacementSummary},
};
use kube::{
    Resource, ResourceExt as _,
    api::DynamicObject,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};

use self::reads::PlacementReads;
pub(super) use self::reads::Unconfirmed;
use super::{RETRY, Reconciler};
use crate::{
    ReconcileError, clusters,
    placement::{PlacementContext, pending::ReconcileScope},
    routing::Revision,
    status,
};

/// Changes that may be written.
pub(super) struct Confirmed<P: PlacementKind> {
    pub changes: Vec<Change<P::Release>>,
    /// The clusters of the others.
    pub outdated: Vec<ClusterKey>,
}

impl<P> Reconciler<P>
where
    P: PlacementKind + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    pub(super) fn reads(&self) -> PlacementReads<'_, P> {
        let PlacementContext { client, clusters, .. } = &*self.context;
        PlacementReads { client, clusters, placement: &*self.object }
    }

    /// Confirms that release objects may be created for the selected Clusters without one. A Cluster that never had one
    /// needs no confirmation. `None` means that the placement has to wait as a whole.
    pub(super) async fn confirm_creations(
        &self,
        reference: &ObjectRef<P>,
        selected: &ClusterMap<Arc<DynamicObject>>,
        existing: &[Arc<P::Release>],
    ) -> Result<Option<Unconfirmed>, ReconcileError> {
        let pending = &self.context.queue.pending;
        let (paused, missing) = missing::<P>(selected, existing);
        // A paused Cluster may be moved here, with its release objects.
        for key in paused {
            pending.require_confirmation(reference, key);
        }
        let is_applied = pending.is_applied(reference, Revision::of(self.object.meta()));
        let mut recreated = self.maybe_recreated(reference, &missing, is_applied);
        if missing.is_empty() || is_applied && recreated.is_empty() {
            return Ok(Some(Unconfirmed::default()));
        }
        // CAAPH chooses random names, so an object that the cache does not contain would not be updated but get a twin.
        let (cached, _) = self.existing(reference, &ReconcileScope::All);
        let uncached = self.reads().uncached_releases(&cached).await?;
        let uncached = uncached.iter().filter_map(|release| P::cluster_of(release));
        let mut outdated: BTreeSet<_> = uncached.filter(|key| missing.contains_key(key)).collect();
        recreated.retain(|key, _| !outdated.contains(key));
        let mut unconfirmed = Unconfirmed::default();
        if !recreated.is_empty() {
            if !self.reads().is_current().await? {
                return Ok(None);
            }
            unconfirmed = self.reads().unconfirmed_creations(&recreated).await;
        }
        unconfirmed.outdated.append(&mut outdated);
        // Until it is confirmed, however long that takes.
        for key in unconfirmed.clusters() {
            pending.require_confirmation(reference, key.clone());
        }
        Ok(Some(unconfirmed))
    }

    /// Returns those of the Clusters that may have had a release object: the watch has shown its deletion, it could not be confirmed
    /// before, or an earlier process has listed them.
    fn maybe_recreated(
        &self,
        reference: &ObjectRef<P>,
        missing: &ClusterMap<Arc<DynamicObject>>,
        is_applied: bool,
    ) -> ClusterMap<Arc<DynamicObject>> {
        if missing.is_empty() {
            return ClusterMap::new();
        }
        let pending = &self.context.queue.pending;
        let listed = if is_applied { HashSet::new() } else { self.listed_clusters() };
        let owner = naming::label_value(&self.object.name_any());
        let maybe = missing.iter().filter(|(key, _)| {
            listed.contains(*key)
                || self.context.releases.is_indexed(&owner, key)
                || pending.requires_confirmation(reference, key)
        });
        maybe.map(|(key, cluster)| (key.clone(), cluster.clone())).collect()
    }

    /// Returns the clusters in the status.
    fn listed_clusters(&self) -> HashSet<ClusterKey> {
        let status = self.context.throttle.current(&self.object);
        let listed = status.as_ref().matching_clusters.iter();
        listed
            .filter_map(|listed| Some(ClusterKey::new(listed.namespace.as_ref()?, listed.name.as_ref()?)))
            .collect()
    }

    /// Removes the deletions that cannot be confirmed, and adds them to `summary` if that has failed. Returns the other changes, and
    /// the clusters whose cached state is outdated. `None` means that the placement has to wait as a whole.
    pub(super) async fn confirm_deletions(
        &self,
        mut changes: Vec<Change<P::Release>>,
        summary: &mut PlacementSummary,
    ) -> Result<Option<Confirmed<P>>, ReconcileError> {
        if changes.iter().all(|change| matches!(change, Change::Apply(_))) {
            return Ok(Some(Confirmed { changes, outdated: Vec::new() }));
        }
        if !self.reads().is_current().await? {
            return Ok(None);
        }
        let unconfirmed = self.reads().unconfirmed_deletions(&changes).await;
        changes.retain(|change| {
            let (Change::Delete(release) | Change::Unselect(release)) = change else { return true };
            let Some(cluster) = P::cluster_of(release) else { return true };
            summary.delete_failures.extend(unconfirmed.failures.get(&cluster).map(|message| DeleteFailure {
                object: release.name_any(),
                cluster: Some(cluster.clone()),
                message: message.clone(),
            }));
            !unconfirmed.contains(&cluster)
        });
        Ok(Some(Confirmed { changes, outdated: unconfirmed.outdated.into_iter().collect() }))
    }

    /// Writes the changes that can be confirmed, and adds the failures to `summary`. Returns the clusters whose cached state is
    /// outdated. `None` means that the placement has to wait as a whole.
    pub(super) async fn write_confirmed(
        &self,
        reference: &ObjectRef<P>,
        changes: Vec<Change<P::Release>>,
        mut unconfirmed: Unconfirmed,
        summary: &mut PlacementSummary,
    ) -> Result<Option<Vec<ClusterKey>>, ReconcileError> {
        let Some(confirmed) = self.confirm_deletions(changes, summary).await? else { return Ok(None) };
        let unwritten = self.write(reference, confirmed.changes).await;
        let outdated = std::mem::take(&mut unconfirmed.outdated).into_iter();
        let outdated = outdated.chain(confirmed.outdated).chain(unwritten.outdated);
        summary.write_failures.extend(unconfirmed.into_failures().chain(unwritten.apply_failures));
        summary.delete_failures.extend(unwritten.delete_failures);
        Ok(Some(outdated.inspect(|cluster| self.log_outdated(Some(cluster))).collect()))
    }

    /// Leaves all release objects as they are until the watches have caught up.
    pub(super) fn wait_for_watches(&self, reference: &ObjectRef<P>) -> Action {
        self.log_outdated(None);
        self.context.queue.pending.add(reference, &ReconcileScope::All);
        Action::requeue(RETRY)
    }

    /// Logs that a cache is outdated, for one cluster or for the whole placement.
    pub(super) fn log_outdated(&self, cluster: Option<&ClusterKey>) {
        tracing::info!(
            kind = status::kind::<P>(),
            namespace = self.object.namespace(),
            name = self.object.name_any(),
            cluster = cluster.map(tracing::field::display),
            "release objects are left unchanged for now, because a cache is outdated"
        );
    }
}

/// Returns the Clusters without a release object: those that are paused, and those that get one.
fn missing<P: PlacementKind>(
    selected: &ClusterMap<Arc<DynamicObject>>,
    existing: &[Arc<P::Release>],
) -> (Vec<ClusterKey>, ClusterMap<Arc<DynamicObject>>) {
    let present: HashSet<_> = existing.iter().filter_map(|release| P::cluster_of(release)).collect();
    let missing = selected
        .iter()
        .filter(|(key, cluster)| !present.contains(*key) && cluster.metadata.deletion_timestamp.is_none());
    let (paused, missing): (ClusterMap<_>, ClusterMap<_>) = missing
        .map(|(key, cluster)| (key.clone(), cluster.clone()))
        .partition(|(_, cluster)| clusters::is_paused_or_deleting(cluster));
    (paused.into_keys().collect(), missing)
}
