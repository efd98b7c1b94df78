//! Lets a release wait for objects that exist although the caches do not contain them yet.

use std::time::Duration;

use chandler_core::release::{ClusterState, Desired, ReleaseKind};
use kube::{ResourceExt as _, core::NamespaceResourceScope, runtime::controller::Action};

use super::{Reconciler, view::View};
use crate::{ManagementError, clusters, status};

/// Delay before a release object is reconciled again that waits for an object that is not cached yet.
const RECHECK: Duration = Duration::from_secs(10);

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Returns whether the object names a placement that exists, but whose policy and state are not known yet.
    pub(super) async fn has_uncached_placement(&self) -> Result<bool, ManagementError> {
        Ok(self.placement.is_uncached && (self.context.placement_exists)(&self.object).await?)
    }

    /// Looks the state of the placement up again. Returns `false` if it has left the cache: the next reconcile reads whether it exists.
    pub(super) fn refresh_placement(&mut self) -> bool {
        let was_cached = !self.placement.is_uncached;
        self.placement = (self.context.placement_state)(&self.object);
        !(was_cached && self.placement.is_uncached)
    }

    /// Returns whether an object claims the release that is not known yet. The release is left to it.
    pub(super) async fn has_uncached_claimant(&self, desired: &Desired) -> Result<bool, ManagementError> {
        let (client, all_kinds) = (&self.context.client, &self.context.all_kinds);
        all_kinds.has_uncached_claimant(client, &desired.cluster, &desired.release).await
    }

    /// Returns whether the Cluster exists that seemed to be missing. Otherwise its release would be left installed.
    pub(super) async fn has_uncached_cluster(
        &self,
        desired: &Desired,
        view: &View,
    ) -> Result<bool, ManagementError> {
        if view.facts.state != ClusterState::Missing {
            return Ok(false);
        }
        Ok(clusters::read(&self.context.client, &desired.cluster).await?.is_some())
    }

    /// Leaves the release as it is until the watch shows something that exists.
    pub(super) fn wait_for_watch(&self, what: &str) -> Action {
        tracing::info!(
            kind = status::kind::<R>(),
            namespace = self.object.namespace(),
            name = self.object.name_any(),
            "the release is left unchanged until the watch shows {what}"
        );
        Action::requeue(RECHECK)
    }
}
