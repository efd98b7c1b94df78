//! Reconciles a placement.

mod confirm;
mod deletion;
mod rollout;
#[cfg(test)]
mod tests;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chandler_api::{
    capi::{CLUSTER_GROUP, CLUSTER_VERSION},
    reasons::PlacementReason,
    status::PlacementStatus,
};
use chandler_core::{
    conditions,
    identity::{ClusterKey, ClusterMap},
    naming,
    placement::{Change, ClusterFailure, PlacementKind, PlacementSummary, Selection, changes, report},
    release::ReleaseKind,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Resource, ResourceExt as _,
    api::DynamicObject,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};

use self::{confirm::Unconfirmed, rollout::RolloutMode};
use super::{
    ComposeError, ComposeMode, ComposedRelease, PlacementContext, WriteValues,
    pending::ReconcileScope,
    recent_writes::CATCH_UP,
    status_throttle::MANY_CLUSTERS,
    unfinished::{Unfinished, unfinished},
};
use crate::{ReconcileError, clusters, queue, routing::Revision, status};

/// Delay before clusters that a reconcile could not finish are retried.
const RETRY: Duration = Duration::from_secs(10);

/// Number of release objects that a placement writes concurrently. Those of a namespace take turns with others.
const WRITES: usize = 16;

/// Release objects of a kind of placements.
type Releases<P> = Vec<Arc<<P as PlacementKind>::Release>>;

/// The composed release objects of some clusters.
struct Composition<P: PlacementKind> {
    /// `None` means that the existing object is left unchanged.
    objects: ClusterMap<Option<ComposedRelease<P::Release>>>,
    /// Why objects cannot be composed.
    failing: ClusterMap<ComposeError>,
    /// Clusters of which something is not known yet.
    pending: BTreeSet<ClusterKey>,
}

impl<P: PlacementKind> Default for Composition<P> {
    fn default() -> Self {
        Self { objects: ClusterMap::new(), failing: ClusterMap::new(), pending: BTreeSet::new() }
    }
}

pub struct Reconciler<P: PlacementKind> {
    pub object: Arc<P>,
    pub context: Arc<PlacementContext<P>>,
}

impl<P> Reconciler<P>
where
    P: PlacementKind + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    pub async fn run(self) -> Result<Action, ReconcileError> {
        if status::is_paused(&*self.object) {
            return Ok(queue::resync(&*self.object));
        }
        let reference = ObjectRef::from_obj(&*self.object);
        if self.object.meta().deletion_timestamp.is_some() {
            let (existing, lagging) = self.existing(&reference, &ReconcileScope::All);
            return self
                .delete(&reference, &existing)
                .await
                .map(|action| requeue_if_lagging(action, &lagging));
        }
        status::add_finalizer(&self.context.client, &*self.object, P::FINALIZER).await?;
        let scope = self.context.queue.pending.take(&reference, Revision::of(self.object.meta()));
        self.context.metrics.placement_reconcile(status::kind::<P>(), scope.as_str());
        let (existing, lagging) = self.existing(&reference, &scope);
        let done = self.place(&reference, &scope, &existing, &lagging).await;
        if done.is_err() {
            // The scope that was taken has not been reconciled.
            self.context.queue.pending.add(&reference, &ReconcileScope::All);
        }
        done.map(|action| requeue_if_lagging(action, &lagging))
    }

    /// Updates the release objects of the clusters in `scope`, of which `existing` are all, then the status. The watch has
    /// yet to show the objects in `lagging`.
    async fn place(
        &self,
        reference: &ObjectRef<P>,
        scope: &ReconcileScope,
        existing: &[Arc<P::Release>],
        lagging: &[Arc<P::Release>],
    ) -> Result<Action, ReconcileError> {
        let mut summary = PlacementSummary::default();
        let selection = match self.object.selection() {
            Ok(selection) => selection,
            Err(error) => {
                summary.selection_failed = Some(error.to_string());
                self.record_applied(reference, scope);
                return self.finish(reference, &BTreeMap::new(), &BTreeMap::new(), summary, None).await;
            }
        };
        let selected = self.selected(&selection, scope);
        let Some(unconfirmed) = self.confirm_creations(reference, &selected, existing).await? else {
            return Ok(self.wait_for_watches(reference));
        };
        let rollout = self.rollout_mode();
        let write_values = match rollout {
            RolloutMode::Off => WriteValues::Always,
            RolloutMode::Held { .. } | RolloutMode::On(_) => WriteValues::UnlessChanged,
        };
        let compose = ComposeMode { package_of: None, write_values };
        let composition = self.compose_confirmed(&selected, &unconfirmed, existing, &compose).await?;
        let to_write = self.roll_out(reference, &selection, scope, &rollout, composition, existing).await?;
        let Some(to_write) = to_write else {
            self.context.queue.pending.add(reference, &ReconcileScope::All);
            return Ok(Action::requeue(Duration::ZERO));
        };
        let failing = to_write.failing;
        let transient = failing.iter().filter(|(_, error)| error.is_transient()).map(|(key, _)| key.clone());
        let mut transient: Vec<_> = transient.collect();
        let failing = failing.into_iter().map(|(key, error)| (key, error.to_string())).collect();
        let uid_of = |key: &ClusterKey| selected.get(key).and_then(|cluster| cluster.uid());
        let mut changes = changes::<P>(&to_write.desired, &to_write.existing, self.object.strategy(), uid_of);
        // A rollout composes the release objects of unconfirmed Clusters, too.
        changes.retain(|change| !unconfirmed.forbids::<P>(change));
        let (changes, still_needed) = self.without_needed(changes);
        summary.still_needed = still_needed;
        let outdated = self.write_confirmed(reference, changes, unconfirmed, &mut summary).await?;
        let Some(outdated) = outdated else { return Ok(self.wait_for_watches(reference)) };
        transient.extend(outdated);
        self.record_applied(reference, scope);
        let lagging = lagging.iter().filter_map(|release| P::cluster_of(release));
        let Unfinished { clusters, retry } = unfinished(transient, &summary, lagging);
        self.context.queue.pending.unfinished(reference, clusters);
        let failing = self.context.queue.pending.failing(reference, scope, failing, |key| {
            self.context
                .clusters
                .get(key)
                .is_some_and(|cluster| selection.matches(&key.name, cluster.labels()))
        });
        summary.template_failures =
            failing.into_iter().map(|(cluster, message)| ClusterFailure { cluster, message }).collect();
        if *scope != ReconcileScope::All
            && retry.is_none()
            && let Some(wait) = self.context.throttle.count_delay(reference)
        {
            // Only the status is left to do.
            self.context.queue.pending.add(reference, &ReconcileScope::status());
            return Ok(Action::requeue(wait));
        }
        let done = self.update_status(reference, &selection, summary).await?;
        if let Some(scope) = retry {
            self.context.queue.pending.add(reference, &scope);
            return Ok(Action::requeue(RETRY));
        }
        Ok(done)
    }

    /// Counts all selected clusters and updates the status.
    async fn update_status(
        &self,
        reference: &ObjectRef<P>,
        selection: &Selection,
        mut summary: PlacementSummary,
    ) -> Result<Action, ReconcileError> {
        // Includes the objects that were just written, which the watch has not shown yet.
        let (existing, _) = self.existing(reference, &ReconcileScope::All);
        let selected = self.selected(selection, &ReconcileScope::All);
        self.context.throttle.record_count(reference, selected.len());
        let releases = by_cluster::<P>(&existing);
        Self::count(&selected, &releases, &mut summary);
        let (rollout, recheck_at) = self.rollout_progress(reference, selection, &releases);
        summary.rollout = rollout;
        self.finish(reference, &selected, &releases, summary, recheck_at).await
    }

    /// Records that the release objects of all clusters reflect the spec, as far as they could be composed and written.
    fn record_applied(&self, reference: &ObjectRef<P>, scope: &ReconcileScope) {
        if *scope == ReconcileScope::All {
            self.context.queue.pending.record_applied(reference, Revision::of(self.object.meta()));
        }
    }

    /// Returns the release objects of the clusters in `scope`, and those of them that the watch has yet to show. Objects
    /// that name no cluster are in the scope of all clusters only.
    fn existing(&self, reference: &ObjectRef<P>, scope: &ReconcileScope) -> (Releases<P>, Releases<P>) {
        let owner = naming::label_value(&self.object.name_any());
        let releases = &self.context.releases;
        let listed = match scope {
            ReconcileScope::All => releases.of_owner(&self.object.namespace().unwrap_or_default(), &owner),
            ReconcileScope::Clusters(some) => {
                some.iter().flat_map(|cluster| releases.of_owner_on(&owner, cluster)).collect()
            }
        };
        let is_in_scope = |release: &P::Release| match P::cluster_of(release) {
            Some(cluster) => scope.contains(&cluster),
            None => *scope == ReconcileScope::All,
        };
        self.context.written.overlay(reference, listed, is_in_scope)
    }

    /// Returns the selected clusters in `scope`.
    fn selected(&self, selection: &Selection, scope: &ReconcileScope) -> ClusterMap<Arc<DynamicObject>> {
        let namespace = self.object.namespace().unwrap_or_default();
        let mut clusters = match scope {
            ReconcileScope::All => self.context.clusters.in_namespace(&namespace),
            ReconcileScope::Clusters(some) => {
                let own = some.iter().filter(|key| key.namespace == namespace);
                own.filter_map(|key| Some((key.clone(), self.context.clusters.get(key)?))).collect()
            }
        };
        clusters.retain(|key, cluster| selection.matches(&key.name, cluster.labels()));
        clusters
    }

    /// Composes the release objects of the selected Clusters. Those of unconfirmed Clusters are left unchanged.
    async fn compose_confirmed(
        &self,
        selected: &ClusterMap<Arc<DynamicObject>>,
        unconfirmed: &Unconfirmed,
        existing: &[Arc<P::Release>],
        mode: &ComposeMode<'_, P::Release>,
    ) -> Result<Composition<P>, ReconcileError> {
        let existing = by_cluster::<P>(existing);
        if unconfirmed.clusters().next().is_none() {
            return self.desired(selected, &existing, mode).await;
        }
        let (held, confirmed): (ClusterMap<_>, ClusterMap<_>) =
            selected.clone().into_iter().partition(|(key, _)| unconfirmed.contains(key));
        let mut composition = self.desired(&confirmed, &existing, mode).await?;
        composition.objects.extend(held.into_keys().map(|key| (key, None)));
        Ok(composition)
    }

    /// Composes the desired release object of each cluster.
    async fn desired(
        &self,
        selected: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<P::Release>>,
        mode: &ComposeMode<'_, P::Release>,
    ) -> Result<Composition<P>, ReconcileError> {
        let active = selected.iter().filter(|(_, cluster)| !clusters::is_paused_or_deleting(cluster));
        let active: ClusterMap<_> = active.map(|(key, cluster)| (key.clone(), cluster.clone())).collect();
        let mut composed = if active.is_empty() {
            ClusterMap::new()
        } else {
            self.context.compose.compose(&self.object, &active, existing, mode).await?
        };
        let mut composition = Composition::<P>::default();
        for key in selected.keys() {
            let object = match composed.remove(key) {
                Some(Ok(object)) => Some(object),
                Some(Err(ComposeError::Pending)) => {
                    composition.pending.insert(key.clone());
                    None
                }
                Some(Err(error)) => {
                    composition.failing.insert(key.clone(), error);
                    None
                }
                None => None,
            };
            composition.objects.insert(key.clone(), object);
        }
        Ok(composition)
    }

    /// Removes the deletions of releases that others depend on. Returns the other changes and those releases.
    fn without_needed(
        &self,
        changes: Vec<Change<P::Release>>,
    ) -> (Vec<Change<P::Release>>, Vec<ClusterFailure>) {
        let mut needed = Vec::new();
        let allowed = |change: &Change<P::Release>| {
            let (Change::Delete(release) | Change::Unselect(release)) = change else { return true };
            let dependents = self
                .context
                .compose
                .is_needed(release)
                .and_then(|message| Some(ClusterFailure { cluster: P::cluster_of(release)?, message }));
            let may_delete = dependents.is_none();
            needed.extend(dependents);
            may_delete
        };
        let changes = changes.into_iter().filter(allowed).collect();
        (changes, needed)
    }

    fn count(
        selected: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<P::Release>>,
        summary: &mut PlacementSummary,
    ) {
        summary.selected = selected.len();
        for (key, cluster) in selected {
            let release = existing.get(key);
            let is_deleting = release.is_some_and(|release| release.meta().deletion_timestamp.is_some());
            if is_deleting {
                summary.reinstalling += 1;
            } else if release.is_none_or(|release| release.current_status().is_none())
                && !clusters::is_paused_or_deleting(cluster)
            {
                summary.updating += 1;
            }
            match release.and_then(|release| release.readiness()) {
                Some(ready) if ready.status == "True" => summary.ready += 1,
                Some(ready) => {
                    let message = ready.message.clone();
                    summary.not_ready.push(ClusterFailure { cluster: key.clone(), message });
                }
                None if !is_deleting && release.is_some_and(|release| release.was_ready()) => {
                    summary.settling += 1;
                }
                None => {}
            }
        }
    }

    async fn finish(
        &self,
        reference: &ObjectRef<P>,
        selected: &ClusterMap<Arc<DynamicObject>>,
        releases: &ClusterMap<Arc<P::Release>>,
        mut summary: PlacementSummary,
        recheck_at: Option<Timestamp>,
    ) -> Result<Action, ReconcileError> {
        let before = self.context.throttle.current(&self.object);
        let old = before.as_ref();
        let generation = self.object.meta().generation;
        let was_changed = was_changed::<P>(old, generation);
        if !was_changed {
            summary.updating = 0;
        }
        if was_changed || summary.selected <= MANY_CLUSTERS {
            // With many clusters, some release often has a new spec for a moment. The status is long: to write all of them twice
            // for each change of a Cluster would delay the release objects of the next.
            summary.settling = 0;
        }
        let conditions = report(&summary, P::VOCABULARY);
        let common = PlacementStatus {
            conditions: conditions::merge(&old.conditions, conditions, generation, Timestamp::now()),
            matching_clusters: selected.keys().map(cluster_reference).collect(),
            ready_clusters: Some(format!("{}/{}", summary.ready, summary.selected)),
            observed_generation: generation,
            rollout: summary.rollout,
        };
        let status = self.context.compose.status(&self.object, selected, releases, common);
        if status != before {
            if let Some(wait) = self.context.throttle.delay(reference, old, status.as_ref()) {
                // The timer is for the status only.
                self.context.queue.pending.add(reference, &ReconcileScope::status());
                return Ok(Action::requeue(wait));
            }
            self.warn_once(old, status.as_ref());
            status::write(&self.context.client, &*self.object, &status).await?;
            self.context.throttle.record(&self.object, status);
        }
        Ok(self.next(reference, releases, recheck_at))
    }

    /// Returns when the placement is reconciled again without an event.
    fn next(
        &self,
        reference: &ObjectRef<P>,
        releases: &ClusterMap<Arc<P::Release>>,
        recheck_at: Option<Timestamp>,
    ) -> Action {
        let again = self.context.compose.requeue_after(&self.object);
        let again = again.into_iter().chain(self.version_poll(releases)).min();
        let again = again.unwrap_or_else(|| queue::until_resync(&*self.object));
        match recheck_at.map(queue::until).filter(|recheck| *recheck < again) {
            Some(recheck) => {
                // The timer is for the rollout only.
                self.context.queue.pending.add(reference, &ReconcileScope::status());
                Action::requeue(recheck)
            }
            None => Action::requeue(again),
        }
    }

    /// Publishes a warning if the placement has a new problem.
    fn warn_once(&self, old: &PlacementStatus, new: &PlacementStatus) {
        let type_ = P::VOCABULARY.specs_up_to_date();
        let before = conditions::find(&old.conditions, type_);
        let now = conditions::find(&new.conditions, type_);
        let in_progress = [Some(PlacementReason::Updating), Some(PlacementReason::Reinstalling)];
        if let Some(now) = now.filter(|now| {
            now.status == "False" && !in_progress.contains(&PlacementReason::parse(&now.reason))
        }) && before.is_none_or(|before| before.message != now.message)
        {
            self.context.events.warning(&*self.object, &now.reason, &now.message);
        }
        self.publish_rollout(old, new);
    }

    fn release_api(&self) -> Api<P::Release> {
        Api::namespaced(self.context.client.clone(), &self.object.namespace().unwrap_or_default())
    }
}

/// Requeues a placement if the watch has yet to show some of its objects: if it never shows one, the object was deleted
/// right after the write and has to be created again.
fn requeue_if_lagging<R>(action: Action, lagging: &[Arc<R>]) -> Action {
    if lagging.is_empty() { action } else { Action::requeue(CATCH_UP) }
}

/// Returns release objects by their clusters.
pub fn by_cluster<P: PlacementKind>(releases: &[Arc<P::Release>]) -> ClusterMap<Arc<P::Release>> {
    releases.iter().filter_map(|release| Some((P::cluster_of(release)?, release.clone()))).collect()
}

/// Returns whether the placement itself has changed and not all of its release objects are updated yet. Updates of
/// single clusters only affect the counts.
fn was_changed<P: PlacementKind>(old: &PlacementStatus, generation: Option<i64>) -> bool {
    let still_updating = |condition: &Condition| {
        condition.type_ == P::VOCABULARY.specs_up_to_date()
            && PlacementReason::parse(&condition.reason) == Some(PlacementReason::Updating)
    };
    old.observed_generation != generation || old.conditions.iter().any(still_updating)
}

fn cluster_reference(cluster: &ClusterKey) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}")),
        kind: Some("Cluster".to_owned()),
        namespace: Some(cluster.namespace.clone()),
        name: Some(cluster.name.clone()),
        ..ObjectReference::default()
    }
}
