//! Routes events to queues: decides which objects have to be reconciled because another one has changed.
//!
//! Every watch passes its events to the [`Router`], which updates its [`Index`] and enqueues the objects that the index
//! returns. The index is synchronous and has no clients or stores, so its tests are tables of events and enqueued
//! objects.

mod facts;
mod index;
mod queues;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, sync::Arc};

use chandler_api::{
    extensions::{AddonPolicy, Extension, ExtensionCatalog, Reference, Source, SyncObject},
    tunnel::ClusterTunnel,
};
use chandler_core::{
    extension::namespace_of,
    fleet::ClassKey,
    identity::{ClusterKey, ReleaseId},
    placement::PlacementKind,
};
use kube::{Resource, ResourceExt as _, api::DynamicObject, runtime::reflector::ObjectRef};

pub use self::{
    facts::Revision,
    index::{Dependency, Index},
    queues::{PairQueues, Queues, ScopedQueue},
};
use crate::{fleet::FleetQueues, locks::Mutex, status, watch::Change};

/// The key of an object of a kind that Chandler reconciles.
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

    /// Returns the key of the object of kind `K` that an object of namespace `own` refers to.
    pub fn referenced<K: Resource<DynamicType = ()>>(
        reference: &Reference,
        own: &str,
        platform: &str,
    ) -> Self {
        let namespace = namespace_of(reference.scope, own, platform);
        Self::new(status::kind::<K>(), namespace, reference.name.clone())
    }

    /// Returns the reference for queues and stores.
    pub fn reference<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// An object to enqueue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enqueue {
    /// A placement and all of its clusters.
    Placement(ObjectKey),
    /// One cluster of a placement.
    PlacementCluster(ObjectKey, ClusterKey),
    /// Only the status of a placement.
    PlacementStatus(ObjectKey),
    Release(ObjectKey),
    Cluster(ClusterKey),
    Extension(ObjectKey),
    Catalog(ObjectKey),
    Source(ObjectKey),
    Sync(ObjectKey),
}

/// An index that is updated by event handlers and read by reconcilers.
pub type SharedIndex = Arc<Mutex<Index>>;

/// Routes events to queues. Clones share the index and the queues.
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

    pub fn on_policy(&self, change: &Change<'_, AddonPolicy>) {
        let policy = facts::Policy::of(change.object());
        self.route(|index| match change {
            Change::Applied(_) => index.on_policy(&policy),
            Change::Deleted(_) => index.on_policy_deleted(&policy),
        });
    }

    /// Handles a change of AddonTenancies: it may be about any namespace.
    pub fn on_tenancies(&self) {
        self.route(|index| index.on_tenancies());
    }

    pub fn on_cluster(&self, change: &Change<'_, DynamicObject>) {
        let Some(cluster) = facts::Cluster::of(change.object()) else { return };
        self.route(|index| match change {
            Change::Applied(_) => index.on_cluster(&cluster),
            Change::Deleted(_) => index.on_cluster_deleted(&cluster),
        });
        self.queues.fleet.on_cluster(&cluster.key);
        self.queues.tunnels.on_cluster(change);
    }

    /// Handles a change of a ClusterTunnel. The conditions of its Cluster say whether it is connected.
    pub fn on_tunnel(&self, change: &Change<'_, ClusterTunnel>) {
        if let Some(cluster) = self.queues.tunnels.on_tunnel(change) {
            self.queues.enqueue(&Enqueue::Cluster(cluster));
        }
    }

    /// Enqueues the ClusterTunnel of a Cluster, for example because a replica of the hub has died.
    pub fn enqueue_tunnel(&self, cluster: &ClusterKey) {
        self.queues.tunnels.enqueue(cluster);
    }

    pub fn on_cluster_class(&self, change: &Change<'_, DynamicObject>) {
        self.queues.fleet.on_class(change.object());
    }

    /// Handles a change of an object that a Cluster refers to, such as its control plane.
    pub fn on_reference(&self, cluster: &ClusterKey) {
        self.route(|index| index.on_reference(cluster));
        self.queues.fleet.on_cluster(cluster);
    }

    /// Enqueues the clusters of a ClusterClass.
    pub fn on_class(&self, class: &ClassKey) {
        self.route(|index| index.on_class(class));
    }

    /// Returns the queues of the hand-over to Fleet, which ignore events unless `--fleet` is set and Fleet is installed.
    pub fn fleet(&self) -> &FleetQueues {
        &self.queues.fleet
    }

    pub fn on_extension(&self, change: &Change<'_, Extension>) {
        self.route(|index| match change {
            Change::Applied(extension) => vec![Enqueue::Extension(ObjectKey::of(*extension))],
            Change::Deleted(extension) => index.on_published(&extension.namespace().unwrap_or_default()),
        });
    }

    pub fn on_catalog(&self, change: &Change<'_, ExtensionCatalog>) {
        if let Change::Applied(catalog) = change {
            self.enqueue_catalog(catalog);
        }
    }

    /// Enqueues a catalog, for example because its Source has changed.
    pub fn enqueue_catalog(&self, catalog: &ExtensionCatalog) {
        self.queues.enqueue(&Enqueue::Catalog(ObjectKey::of(catalog)));
    }

    pub fn on_source_object(&self, change: &Change<'_, Source>) {
        if let Change::Applied(source) = change {
            self.enqueue_source(source);
        }
    }

    /// Enqueues a Source, for example because a webhook requests a poll.
    pub fn enqueue_source(&self, source: &Source) {
        self.queues.enqueue(&Enqueue::Source(ObjectKey::of(source)));
    }

    /// Enqueues a Sync, for example because its Source or a Sync that it depends on has changed.
    pub fn enqueue_sync(&self, sync: &SyncObject) {
        self.queues.enqueue(&Enqueue::Sync(ObjectKey::of(sync)));
    }

    /// Handles a change of the versions that the Extensions of a namespace publish.
    pub fn on_published(&self, namespace: &str) {
        self.route(|index| index.on_published(namespace));
    }

    /// Handles a change of catalogs or of the packages that they offer.
    pub fn on_catalogs(&self) {
        self.route(|index| index.on_catalogs());
    }

    /// Handles catalogs that have changed or were read at other revisions of their Sources. `extensions` are those with packages
    /// of these catalogs.
    pub fn on_catalog_revisions(&self, catalogs: &BTreeSet<ObjectKey>, extensions: &BTreeSet<ObjectKey>) {
        self.route(|index| index.on_catalog_revisions(catalogs, extensions));
    }

    /// Handles a change of the packages that a repository or registry offers.
    pub fn on_source(&self) {
        self.route(|index| index.on_source());
    }

    /// Enqueues an Extension, because what it reads has changed.
    pub fn enqueue_extension(&self, extension: &Extension) {
        self.queues.enqueue(&Enqueue::Extension(ObjectKey::of(extension)));
    }

    /// Handles other revisions of Sources. `namespaces` are those with Extensions whose packages are made of files of Sources.
    pub fn on_revisions(&self, namespaces: &BTreeSet<String>) {
        self.route(|index| index.on_revisions(namespaces));
    }

    /// Handles a change of objects that the placement in `namespace` with this uid reads parameters from.
    pub fn on_parameter_sources(&self, namespace: &str, uid: &str) {
        self.route(|index| index.on_parameter_sources(namespace, uid));
    }

    /// Handles a change of the resolved versions of a cluster.
    pub fn on_resolution(&self, cluster: &ClusterKey) {
        self.route(|index| index.on_resolution(cluster));
    }

    /// Handles a change of a release on a workload cluster. `None` means all of its releases, for example if the
    /// cluster has become reachable or unreachable.
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
