//! The controller of placements, generic over [`PlacementKind`]. It creates a release object for each selected cluster.

mod compose;
mod pending;
mod recent_writes;
mod reconciler;
mod rollout_targets;
mod status_throttle;
mod unfinished;

use std::{sync::Arc, time::Duration};

use chandler_core::{failure::Failure, placement::PlacementKind, release::Desired};
use futures::future::BoxFuture;
use kube::{
    Client,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};

pub use compose::{Compose, ComposeError, ComposeMode, Composed, ComposedRelease, WriteValues};
pub use pending::ReconcileScope;
pub use recent_writes::RecentWrites;
pub use reconciler::by_cluster;
pub use rollout_targets::RolloutTargets;
pub use status_throttle::StatusThrottle;

use self::pending::Pending;
use crate::{
    ReconcileError,
    caches::{ReleaseCache, placement_ref},
    clusters::Clusters,
    events::Events,
    metrics::Metrics,
    policies::Policies,
    queue::Trigger,
    routing::Revision,
    values::ValuesSecrets,
};

/// A release that follows the newest version of its package.
#[derive(Clone, Debug)]
pub struct FollowedPackage {
    /// Without a version.
    pub desired: Desired,
    /// The version that is installed.
    pub installed: Option<String>,
    /// The version of the rollout in progress, which is used instead of the newest one.
    pub of_rollout: Option<String>,
}

/// Returns the version that a release that follows the newest one gets. Fails if it has to keep its own.
pub type FollowedVersion =
    Box<dyn Fn(FollowedPackage) -> BoxFuture<'static, Result<String, Failure>> + Send + Sync>;

/// The context of the reconciler of placements.
pub struct PlacementContext<P: PlacementKind> {
    pub client: Client,
    pub clusters: Clusters,
    pub releases: ReleaseCache<P::Release>,
    pub queue: PlacementQueue<P>,
    pub written: Arc<RecentWrites<P, P::Release>>,
    pub throttle: StatusThrottle<P>,
    /// Composes the release objects.
    pub compose: Box<dyn Compose<P>>,
    pub policies: Policies,
    pub values_secrets: ValuesSecrets,
    pub rollout_targets: RolloutTargets<P>,
    pub followed_version: FollowedVersion,
    /// How often placements whose rollouts follow the newest version poll for it.
    pub poll_interval: Duration,
    /// Whether the health of releases is observed, unless a policy turns it off.
    pub health: bool,
    pub events: Events,
    pub metrics: Metrics,
}

/// The queue of a kind of placements, with the scope of the next reconcile of each. Clones share the queue.
pub struct PlacementQueue<P: PlacementKind> {
    placements: Trigger<P>,
    pending: Pending<P>,
}

impl<P: PlacementKind> Clone for PlacementQueue<P> {
    fn clone(&self) -> Self {
        Self { placements: self.placements.clone(), pending: self.pending.clone() }
    }
}

impl<P: PlacementKind> PlacementQueue<P> {
    pub fn new(placements: Trigger<P>) -> Self {
        Self { placements, pending: Pending::default() }
    }

    pub fn enqueue(&self, placement: ObjectRef<P>, scope: &ReconcileScope) {
        self.pending.add(&placement, scope);
        self.placements.enqueue(placement);
    }

    /// Records that the watch has shown the deletion of a release object.
    pub fn record_deleted(&self, release: &P::Release) {
        if let (Some(placement), Some(cluster)) = (placement_ref::<P>(release), P::cluster_of(release)) {
            self.pending.require_confirmation(&placement, cluster);
        }
    }

    /// Returns whether the release objects of a placement have been written for its current revision.
    pub fn is_applied(&self, placement: &P) -> bool {
        self.pending.is_applied(&ObjectRef::from_obj(placement), Revision::of(placement.meta()))
    }
}

/// Reconciles a placement.
pub async fn reconcile<P>(object: Arc<P>, context: Arc<PlacementContext<P>>) -> Result<Action, ReconcileError>
where
    P: PlacementKind + kube::Resource<Scope = NamespaceResourceScope>,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    reconciler::Reconciler { object, context }.run().await
}
