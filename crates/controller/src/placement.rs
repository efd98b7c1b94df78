//! Placements: from clusters and a template to release objects, for every kind that is a face of a placement.

mod compose;
mod pending;
mod reconciler;
mod status_throttle;
mod written;

use std::sync::Arc;

use chandler_core::placement::PlacementKind;
use kube::{
    Client,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};

pub use compose::{Compose, ComposeError, Composed};
pub use pending::Scope;
pub use reconciler::WRITES;
pub use status_throttle::StatusThrottle;
use tokio::sync::Semaphore;
pub use written::Written;

use self::pending::Pending;
use crate::{
    ReconcileError, caches::ReleaseCache, clusters::Clusters, events::Events, metrics::Metrics,
    queue::Trigger,
};

/// What a pass over a placement works with.
pub struct PlacementContext<P: PlacementKind> {
    pub client: Client,
    pub clusters: Clusters,
    pub releases: ReleaseCache<P::Release>,
    pub queue: PlacementQueue<P>,
    /// Release objects that may be written at the same time, by all placements together: a fleet that starts at once
    /// must not drown its own API server, where the Lease is renewed too.
    pub writes: Semaphore,
    pub written: Written<P, P::Release>,
    pub throttle: StatusThrottle<P>,
    /// Makes the release objects.
    pub compose: Box<dyn Compose<P>>,
    pub events: Events,
    pub metrics: Metrics,
}

/// The queue of a kind of placements, with the clusters that each reconcile is about. Clones share it.
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

    pub fn enqueue(&self, placement: ObjectRef<P>, scope: &Scope) {
        self.pending.add(&placement, scope);
        self.placements.enqueue(placement);
    }
}

/// One pass over one placement.
pub async fn reconcile<P>(object: Arc<P>, context: Arc<PlacementContext<P>>) -> Result<Action, ReconcileError>
where
    P: PlacementKind + kube::Resource<Scope = NamespaceResourceScope>,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    reconciler::Reconciler { object, context }.run().await
}
