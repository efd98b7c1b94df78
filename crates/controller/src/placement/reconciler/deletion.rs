//! Deletes a placement with its release objects.

use std::sync::Arc;

use chandler_api::{capi::DELETE_FOR_MOVE_ANNOTATION, status::PlacementStatus};
use chandler_core::{
    conditions,
    placement::{Change, ClusterFailure, DeleteFailure, PlacementKind, PlacementSummary, report},
};
use jiff::Timestamp;
use kube::{
    Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};
use serde_json::json;

use super::{RETRY, Reconciler, by_cluster};
use crate::{ManagementError, ReconcileError, placement::pending::ReconcileScope, queue, status};

impl<P> Reconciler<P>
where
    P: PlacementKind + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    /// Deletes the release objects, then removes the finalizer of the placement.
    pub(super) async fn delete(
        &self,
        reference: &ObjectRef<P>,
        existing: &[Arc<P::Release>],
    ) -> Result<Action, ReconcileError> {
        if existing.is_empty() {
            if !self.reads().uncached_releases(existing).await?.is_empty() {
                return Ok(self.wait_for_watches(reference));
            }
            self.context.queue.pending.forget(reference);
            self.context.written.forget(reference);
            self.context.throttle.forget(reference);
            self.context.rollout_targets.forget(reference);
            self.context.compose.forget(&self.object);
            status::remove_finalizer(&self.context.client, &*self.object, P::FINALIZER).await?;
            return Ok(Action::await_change());
        }
        let remaining: Vec<_> =
            existing.iter().filter(|release| release.meta().deletion_timestamp.is_none()).collect();
        if self.object.annotations().contains_key(DELETE_FOR_MOVE_ANNOTATION) {
            self.mark_moved(&remaining).await?;
        }
        let deletions = remaining.iter().map(|release| Change::Delete(Arc::clone(release))).collect();
        let (deletions, still_needed) = self.without_needed(deletions);
        let is_needed = !still_needed.is_empty();
        if is_needed {
            self.report_still_needed(still_needed, existing).await?;
        }
        let unwritten = self.write(reference, deletions).await;
        let is_unfinished =
            is_needed || !unwritten.delete_failures.is_empty() || !unwritten.outdated.is_empty();
        for DeleteFailure { object, cluster, message } in unwritten.delete_failures {
            let (placement, cluster) = (self.object.name_any(), cluster.map(|cluster| cluster.to_string()));
            tracing::warn!(placement, cluster, "cannot delete release object {object}: {message}");
        }
        // A dependent that still refers to another release object causes no event here when it is removed.
        Ok(if is_unfinished { Action::requeue(RETRY) } else { queue::resync(&*self.object) })
    }

    /// Reports why the deletion of a placement has to wait.
    async fn report_still_needed(
        &self,
        still_needed: Vec<ClusterFailure>,
        existing: &[Arc<P::Release>],
    ) -> Result<(), ReconcileError> {
        let before = self.context.throttle.current(&self.object);
        let old = before.as_ref();
        let summary = PlacementSummary { still_needed, ..PlacementSummary::default() };
        let conditions = conditions::merge(
            &old.conditions,
            report(&summary, P::VOCABULARY),
            self.object.meta().generation,
            Timestamp::now(),
        );
        let selection = self.object.selection();
        let selected = selection.map(|selection| self.selected(&selection, &ReconcileScope::All));
        let selected = selected.unwrap_or_default();
        let common = PlacementStatus { conditions, ..old.clone() };
        let status = self.context.compose.status(&self.object, &selected, &by_cluster::<P>(existing), common);
        if status == before {
            return Ok(());
        }
        self.warn_once(old, status.as_ref());
        status::write(&self.context.client, &*self.object, &status).await?;
        self.context.throttle.record(&self.object, status);
        Ok(())
    }

    /// Marks the release objects of a moved placement as moved, so that their releases are not uninstalled.
    ///
    /// `clusterctl move` moves the release objects too, but those of a Cluster that it does not pause may have been
    /// created again in the meantime.
    async fn mark_moved(&self, releases: &[&Arc<P::Release>]) -> Result<(), ReconcileError> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {DELETE_FOR_MOVE_ANNOTATION: ""}}}));
        for release in releases {
            let name = release.name_any();
            self.release_api().patch(&name, &PatchParams::default(), &patch).await.map_err(|source| {
                ManagementError::Write { kind: status::kind::<P::Release>(), name, source }
            })?;
        }
        Ok(())
    }
}
