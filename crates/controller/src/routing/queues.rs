//! The queues of all controllers.

use std::collections::HashSet;

use chandler_api::extensions::{Extension, ExtensionCatalog, Source, SyncObject};
use chandler_core::placement::PlacementKind;
use kube::{Resource, api::DynamicObject};

use super::{Enqueue, ObjectKey};
use crate::{
    clusters,
    extension::CLUSTER,
    fleet::FleetQueues,
    metrics::Metrics,
    placement::{PlacementQueue, ReconcileScope},
    queue::Trigger,
    status,
    tunnel::TunnelQueues,
};

/// The queues of all controllers.
pub struct Queues {
    pub pairs: Vec<Box<dyn PairQueues>>,
    pub clusters: Trigger<DynamicObject>,
    pub extensions: Vec<ScopedQueue<Extension>>,
    pub catalogs: Vec<ScopedQueue<ExtensionCatalog>>,
    pub sources: Vec<ScopedQueue<Source>>,
    pub syncs: Trigger<SyncObject>,
    pub fleet: FleetQueues,
    pub tunnels: TunnelQueues,
}

impl Queues {
    /// Returns queues that nothing reads.
    pub fn unused(metrics: &Metrics) -> Self {
        Self {
            pairs: Vec::new(),
            clusters: Trigger::new(CLUSTER, metrics).0,
            extensions: Vec::new(),
            catalogs: Vec::new(),
            sources: Vec::new(),
            syncs: Trigger::new(status::kind::<SyncObject>(), metrics).0,
            fleet: FleetQueues::default(),
            tunnels: TunnelQueues::default(),
        }
    }

    pub fn enqueue(&self, work: &Enqueue) {
        match work {
            Enqueue::Placement(placement) => self.placement(placement, &ReconcileScope::All),
            Enqueue::PlacementCluster(placement, cluster) => {
                self.placement(placement, &ReconcileScope::Clusters(HashSet::from([cluster.clone()])));
            }
            Enqueue::PlacementStatus(placement) => self.placement(placement, &ReconcileScope::status()),
            Enqueue::Release(release) => self.pairs.iter().for_each(|pair| pair.enqueue_release(release)),
            Enqueue::Cluster(cluster) => self.clusters.enqueue(clusters::reference(cluster)),
            Enqueue::Extension(extension) => enqueue_scoped(&self.extensions, extension),
            Enqueue::Catalog(catalog) => enqueue_scoped(&self.catalogs, catalog),
            Enqueue::Source(source) => enqueue_scoped(&self.sources, source),
            Enqueue::Sync(sync) => self.syncs.enqueue(sync.reference()),
        }
    }

    fn placement(&self, placement: &ObjectKey, scope: &ReconcileScope) {
        self.pairs.iter().for_each(|pair| pair.enqueue_placement(placement, scope));
    }
}

/// The queues of a kind of placements and its release objects. Objects of other kinds are ignored.
pub trait PairQueues: Send + Sync {
    fn enqueue_placement(&self, placement: &ObjectKey, scope: &ReconcileScope);
    fn enqueue_release(&self, release: &ObjectKey);
}

impl<P: PlacementKind> PairQueues for (PlacementQueue<P>, Trigger<P::Release>) {
    fn enqueue_placement(&self, placement: &ObjectKey, scope: &ReconcileScope) {
        if placement.kind == status::kind::<P>() {
            self.0.enqueue(placement.reference(), scope);
        }
    }

    fn enqueue_release(&self, release: &ObjectKey) {
        if release.kind == status::kind::<P::Release>() {
            self.1.enqueue(release.reference());
        }
    }
}

/// A queue for the objects of one namespace. `None` means all namespaces.
pub struct ScopedQueue<K: Resource> {
    pub namespace: Option<String>,
    pub queue: Trigger<K>,
}

fn enqueue_scoped<K>(queues: &[ScopedQueue<K>], object: &ObjectKey)
where
    K: Resource<DynamicType = ()> + 'static,
{
    let serves = |scoped: &&ScopedQueue<K>| {
        scoped.namespace.as_ref().is_none_or(|namespace| *namespace == object.namespace)
    };
    if let Some(scoped) = queues.iter().find(serves) {
        scoped.queue.enqueue(object.reference());
    }
}
