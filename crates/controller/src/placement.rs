//! Placements: from clusters and a template to release objects, for every kind that is a face of a placement.

mod compose;
mod pass;
mod pending;
mod status_throttle;
mod values;
mod written;

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{identity::ClusterKey, placement::PlacementFace};
use kube::{
    Client, ResourceExt as _,
    core::NamespaceResourceScope,
    runtime::{
        controller::Action,
        reflector::{ObjectRef, Store},
    },
};

pub use compose::{Compose, Composed};
pub use pass::WRITES;
pub use status_throttle::Told;
use tokio::sync::Semaphore;
pub use values::{Needed, Templates};
pub use written::Written;

use self::pending::Dirty;
use crate::{Error, clusters::Clusters, events::Events, index::ReleaseIndex, queue::Trigger};

/// What a pass over a placement works with.
pub struct PlacementContext<P: PlacementFace> {
    pub client: Client,
    pub clusters: Clusters,
    pub index: ReleaseIndex<P::Release>,
    pub desk: Desk<P>,
    /// Release objects that may be written at the same time, by all placements together: a fleet that starts at once
    /// must not drown its own API server, where the Lease is renewed too.
    pub writes: Semaphore,
    pub written: Written<P, P::Release>,
    pub told: Told<P>,
    /// Makes the release objects.
    pub compose: Box<dyn Compose<P>>,
    pub events: Events,
}

/// Where placements are handed in to be looked at, in whole or for one cluster. Clones share it.
pub struct Desk<P: PlacementFace> {
    placements: Trigger<P>,
    dirty: Dirty<P>,
}

impl<P: PlacementFace> Clone for Desk<P> {
    fn clone(&self) -> Self {
        Self { placements: self.placements.clone(), dirty: self.dirty.clone() }
    }
}

impl<P: PlacementFace> Desk<P> {
    pub fn new(placements: Trigger<P>) -> Self {
        Self { placements, dirty: Dirty::default() }
    }

    /// A placement itself was touched.
    pub fn placement(&self, placement: &P) {
        let reference = ObjectRef::from_obj(placement);
        self.dirty.all(&reference);
        self.placements.look_at(reference);
    }

    /// A release object was touched: its placement looks at its cluster.
    pub fn release(&self, release: &P::Release) {
        let kind = P::kind(&());
        let owner = release.owner_references().iter().find(|owner| owner.kind == kind);
        if let (Some(owner), Some(cluster)) = (owner, P::cluster_of(release)) {
            self.one(ObjectRef::new(&owner.name).within(&cluster.namespace), &cluster);
        }
    }

    /// A Cluster was touched: the placements that want it, and those that have a release on it, look at it.
    pub fn cluster(
        &self,
        placements: &Store<P>,
        index: &ReleaseIndex<P::Release>,
        cluster: &ClusterKey,
        labels: &BTreeMap<String, String>,
    ) {
        for release in index.on_cluster(cluster) {
            self.release(&release);
        }
        let wanting = placements.state_filter(|placement| placement.wants(cluster, labels));
        for placement in wanting {
            self.one(ObjectRef::from_obj(&*placement), cluster);
        }
    }

    fn one(&self, placement: ObjectRef<P>, cluster: &ClusterKey) {
        self.dirty.cluster(&placement, cluster);
        self.placements.look_at(placement);
    }
}

/// One pass over one placement.
pub async fn reconcile<P>(object: Arc<P>, context: Arc<PlacementContext<P>>) -> Result<Action, Error>
where
    P: PlacementFace + kube::Resource<Scope = NamespaceResourceScope>,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    pass::Pass { object, context }.run().await
}
