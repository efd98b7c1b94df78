//! Turns events into work: which objects have to be reconciled because another one has changed.
//!
//! Every watch hands its events to the [`Router`]. The router brings its [`Index`] up to date and adds what the index
//! answers to the queues. The index is synchronous and knows neither clients nor stores, so its tests are tables of events
//! and of the work that they cause.

mod facts;
mod index;
mod queues;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use chandler_api::extensions::{Extension, ExtensionCatalog};
use chandler_core::{
    identity::{ClusterKey, ReleaseId},
    placement::PlacementKind,
};
use kube::{Resource, ResourceExt as _, api::DynamicObject, runtime::reflector::ObjectRef};

pub use self::{
    index::Index,
    queues::{PairQueues, Queues, ScopedQueue},
};
use crate::{status, sync::Mutex, watch::Change};

/// An object of a kind that Chandler reconciles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(kind: &'static str, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::new(status::kind::<K>(), object.namespace().unwrap_or_default(), object.name_any())
    }

    /// The object as queues and stores name it.
    pub fn reference<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Something to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enqueue {
    /// A placement and all of its clusters.
    Placement(ObjectKey),
    /// One cluster of a placement.
    PlacementCluster(ObjectKey, ClusterKey),
    /// The status of a placement and none of its clusters.
    PlacementStatus(ObjectKey),
    Release(ObjectKey),
    Cluster(ClusterKey),
    Extension(ObjectKey),
    Catalog(ObjectKey),
}

/// An index that event handlers write and reconcilers read.
pub type SharedIndex = Arc<Mutex<Index>>;

/// Routes events to queues. Clones share both.
#[derive(Clone)]
pub struct Router {
    index: SharedIndex,
    queues: Arc<Queues>,
}

impl Router {
    pub fn new(index: SharedIndex, queues: Queues) -> Self {
        Self { index, queues: Arc::new(queues) }
    }

    pub fn on_placement<P: PlacementKind>(&self, change: &Change<'_, P>) {
        let placement = facts::Placement::of(change.object());
        self.route(|index| match change {
            Change::Applied(_) => index.on_placement(&placement),
            Change::Deleted(_) => index.on_placement_deleted(&placement),
        });
    }

    pub fn on_release<P: PlacementKind>(&self, change: &Change<'_, P::Release>) {
        let release = facts::Release::of::<P>(change.object());
        self.route(|index| match change {
            Change::Applied(_) => index.on_release(&release),
            Change::Deleted(_) => index.on_release_deleted(&release),
        });
    }

    pub fn on_cluster(&self, change: &Change<'_, DynamicObject>) {
        let Some(cluster) = facts::Cluster::of(change.object()) else { return };
        self.route(|index| match change {
            Change::Applied(_) => index.on_cluster(&cluster),
            Change::Deleted(_) => index.on_cluster_deleted(&cluster),
        });
    }

    /// An object that a Cluster refers to has changed, such as its control plane.
    pub fn on_reference(&self, cluster: &ClusterKey) {
        self.route(|index| index.on_reference(cluster));
    }

    pub fn on_extension(&self, change: &Change<'_, Extension>) {
        self.route(|index| match change {
            Change::Applied(extension) => vec![Enqueue::Extension(ObjectKey::of(*extension))],
            Change::Deleted(extension) => index.on_published(&extension.namespace().unwrap_or_default()),
        });
    }

    pub fn on_catalog(&self, change: &Change<'_, ExtensionCatalog>) {
        if let Change::Applied(catalog) = change {
            self.queues.enqueue(&Enqueue::Catalog(ObjectKey::of(*catalog)));
        }
    }

    /// The Extensions of a namespace publish other versions now.
    pub fn on_published(&self, namespace: &str) {
        self.route(|index| index.on_published(namespace));
    }

    /// Catalogs were added, changed or removed, or offer other packages now.
    pub fn on_catalogs(&self) {
        self.route(|index| index.on_catalogs());
    }

    /// A repository or registry offers other packages now.
    pub fn on_source(&self) {
        self.route(|index| index.on_source());
    }

    /// The extensions of a cluster have to be at other versions now.
    pub fn on_resolution(&self, cluster: &ClusterKey) {
        self.route(|index| index.on_resolution(cluster));
    }

    /// Releases on a workload cluster have changed, or whether it can be reached. `None` means all of its releases.
    pub fn on_inventory(&self, cluster: &ClusterKey, release: Option<&ReleaseId>) {
        self.route(|index| index.on_inventory(cluster, release));
    }

    fn route(&self, event: impl FnOnce(&mut Index) -> Vec<Enqueue>) {
        let work = event(&mut self.index.lock());
        for item in &work {
            self.queues.enqueue(item);
        }
    }
}
