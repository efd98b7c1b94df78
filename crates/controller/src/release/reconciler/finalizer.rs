//! The finalizer of a release object, which holds a deleted object until its release is removed.

use chandler_core::release::{Desired, Findings, Plan, ReleaseKind, RemoveFinalizer};
use kube::{ResourceExt as _, core::NamespaceResourceScope, runtime::controller::Action};

use super::{ReconcileState, Reconciler};
use crate::{ManagementError, ReconcileError, status};

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Returns whether the object is being deleted.
    pub(super) fn deleting(&self) -> bool {
        self.object.meta().deletion_timestamp.is_some()
    }

    /// Adds the finalizer, unless the object is being deleted.
    pub(super) async fn add_finalizer(&self) -> Result<(), ManagementError> {
        if self.deleting() {
            return Ok(());
        }
        status::add_finalizer(&self.context.client, &*self.object, R::FINALIZER).await
    }

    /// Removes the finalizer and ends the reconcile.
    pub(super) async fn remove_finalizer(
        mut self,
        desired: &Desired,
        why: RemoveFinalizer,
    ) -> Result<Action, ReconcileError> {
        // Before the object is gone: a manager that stops in between would not publish it later.
        self.publish_not_uninstalled(desired, why).await;
        let states = self.context.caches.reconcile_states.clone();
        let kept = if self.object.finalizers().iter().any(|held| held != R::FINALIZER) {
            // Others hold the object too, and its readers want to know how far it is. If the write has changed it, the request
            // below fails, and the next reconcile removes the finalizer: it is removed only from the object that was planned for.
            self.update_conditions(desired, &Plan::RemoveFinalizer(why), Findings::default());
            self.write().await?;
            states.get(&self.uid)
        } else {
            std::mem::take(&mut self.state)
        };
        // Before the request, because the state is dropped when the watch shows that the object is gone.
        states.insert(&self.uid, ReconcileState { finalizer_removed: true, ..ReconcileState::default() });
        let removed = status::remove_finalizer(&self.context.client, &*self.object, R::FINALIZER).await;
        if removed.is_err() {
            states.replace(&self.uid, kept);
            self.drop_status_if_shown();
        }
        // Even if the request has failed, because its Event is published. Not before it: a manager that stops waits for this.
        self.acknowledge();
        removed?;
        tracing::info!(cluster = %desired.cluster, release = %desired.release, ?why, "finalizer removed");
        Ok(Action::await_change())
    }

    /// Publishes that the Cluster is deleted although the release was to be uninstalled first.
    async fn publish_not_uninstalled(&mut self, desired: &Desired, why: RemoveFinalizer) {
        let is_left = self.status.revision.is_some() && !self.state.absence_confirmed;
        let is_known = self.state.not_uninstalled_published
            || !self.object.finalizers().iter().any(|held| held == R::FINALIZER);
        if why != RemoveFinalizer::ClusterGone || !desired.remove_with_cluster || !is_left || is_known {
            return;
        }
        let (release, cluster) = (&desired.release, &desired.cluster.name);
        let note = format!(
            "Cluster {cluster} is deleted before release {release} is uninstalled: resources of the release outside of the \
             cluster, such as load balancers and volumes, may be left"
        );
        tracing::warn!(cluster = %desired.cluster, release = %desired.release, "the release is not uninstalled");
        self.state.not_uninstalled_published =
            self.context.events.warning_and_wait(&*self.object, "NotUninstalled", &note).await;
    }
}
