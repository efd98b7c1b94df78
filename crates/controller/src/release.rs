//! Reconciles release objects: observe, plan, act; for every kind that implements `ReleaseKind`.

mod boundary;
mod catalog_filter;
mod catalogs;
mod grants;
mod inputs;
mod kubernetes;
mod operate;
mod order;
mod placement_state;
mod reconcile_state;
mod reconciler;
mod secrets;
mod uncached;

use std::{collections::HashSet, sync::Arc, time::Duration};

pub use catalog_filter::named_catalog;
pub use catalogs::{CatalogFolder, NamedCatalogs};
use chandler_core::release::{Claimant, Desired, ReleaseKind};
use chandler_source::Packages;
use chandler_tool::Tools;
use chandler_workload::Connections;
pub use inputs::{Inputs, file, package_format};
use kube::{
    Client, ResourceExt as _,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};
pub use operate::{Done, Outcome};
pub use placement_state::PlacementState;
pub use reconcile_state::ReconcileStates;
pub use secrets::Secrets;
pub use uncached::{PlacementExists, has_uncached_claimant, placement_exists};

use crate::{
    ReconcileError,
    caches::{AllKinds, ReleaseCache},
    clusters::Clusters,
    events::Events,
    locks::Mutex,
    metrics::Metrics,
    operations::Operations,
    queue::Trigger,
    references::References,
    sources::SourcePackages,
    tenancies::Tenancies,
};

/// Returns whether this manager reconciles a release object.
pub type IsOurs<R> = Box<dyn Fn(&R) -> bool + Send + Sync>;

/// Returns the state of the placement of a release object.
pub type PlacementStateOf<R> = Box<dyn Fn(&R) -> PlacementState + Send + Sync>;

/// The parts of the manager that the reconciler of release objects uses.
pub struct ReleaseContext<R: ReleaseKind> {
    pub client: Client,
    pub clusters: Clusters,
    pub releases: ReleaseCache<R>,
    pub all_kinds: AllKinds,
    pub references: References,
    pub caches: ReleaseCaches,
    pub packages: Arc<Packages>,
    pub catalogs: NamedCatalogs,
    pub source_packages: SourcePackages,
    pub tenancies: Tenancies,
    pub secrets: Secrets,
    pub tools: Tools,
    pub events: Events,
    pub metrics: Metrics,
    pub queue: Trigger<R>,
    /// How often releases without a version poll for a newer one.
    pub poll_interval: Duration,
    /// Whether the health of releases is observed, unless a policy turns it off.
    pub health: bool,
    /// The longest timeout of an operation.
    pub max_timeout: Duration,
    pub is_ours: IsOurs<R>,
    pub placement_state: PlacementStateOf<R>,
    pub placement_exists: PlacementExists<R>,
    /// Warnings already sent about versions that were published again with other content.
    pub republished: Mutex<HashSet<String>>,
}

/// Reconciles one release object.
pub async fn reconcile<R>(object: Arc<R>, context: Arc<ReleaseContext<R>>) -> Result<Action, ReconcileError>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    if !(context.is_ours)(&object) {
        return Ok(Action::await_change());
    }
    let result = Box::pin(reconciler::Reconciler::begin(object.clone(), context.clone())?.run()).await;
    context.forget_if_deleted(&object);
    result
}

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Drops what a reconcile has created or opened again for an object that was deleted meanwhile.
    fn forget_if_deleted(&self, object: &R) {
        let current = self.releases.by_reference(&ObjectRef::from_obj(object));
        if current.is_none_or(|current| current.uid() != object.uid()) {
            self.caches.forget(&self.all_kinds, object);
        }
    }
}

/// State that is kept per release object.
#[derive(Clone)]
pub struct ReleaseCaches {
    pub reconcile_states: ReconcileStates,
    pub operations: Operations<Outcome>,
    pub connections: Connections,
}

impl ReleaseCaches {
    /// Drops the kept status if the watch shows the same one.
    pub fn on_applied<R: ReleaseKind>(&self, applied: &R) {
        self.reconcile_states.drop_status_if_current(&applied.uid().unwrap_or_default(), applied.status());
    }

    /// Drops the state of a deleted object. The object may be deleted without a reconcile: `clusterctl move` removes
    /// finalizers.
    pub fn forget<R: ReleaseKind>(&self, all_kinds: &AllKinds, deleted: &R) {
        let uid = deleted.uid().unwrap_or_default();
        self.reconcile_states.remove(&uid);
        self.operations.forget(&uid);
        let Ok(Desired { cluster, release, .. }) = deleted.desired() else { return };
        if !all_kinds.uses(&cluster) {
            self.connections.close(&cluster);
            self.operations.forget_cluster(&cluster);
        } else if all_kinds.claimants(&cluster, &release).is_empty() {
            self.connections.forget(&cluster, &release);
        }
    }
}

/// Describes an object as one of those that claim the same release.
pub fn claimant<R: ReleaseKind>(object: &R) -> Claimant {
    let created = object.meta().creation_timestamp.as_ref().map(|time| time.0);
    let name = format!("{} {}/{}", R::kind(&()), object.namespace().unwrap_or_default(), object.name_any());
    Claimant { created, name, deleting: object.meta().deletion_timestamp.is_some() }
}
