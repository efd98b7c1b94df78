//! Release objects: observe → plan → act, for every kind that is a face of a release.

mod grants;
mod inputs;
mod kubernetes;
mod memory;
mod operate;
mod pass;

use std::{sync::Arc, time::Duration};

use chandler_core::release::ReleaseFace;
use chandler_source::Packages;
use chandler_tool::PackageTool;
use chandler_workload::{Connections, InventoryChange};
use kube::{
    Client, ResourceExt as _,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};
pub use memory::Memories;
pub use operate::Outcome;

use crate::{
    Error, clusters::Clusters, events::Events, index::ReleaseIndex, metrics::Metrics, operations::Operations,
    queue::Trigger, references::References, status,
};

/// Tells whether a release object is ours to look after.
pub type IsOurs<R> = Box<dyn Fn(&R) -> bool + Send + Sync>;

/// What a pass over a release object works with.
pub struct ReleaseContext<R: ReleaseFace> {
    pub client: Client,
    pub clusters: Clusters,
    pub index: ReleaseIndex<R>,
    pub references: References,
    pub connections: Connections,
    pub packages: Arc<Packages>,
    pub tool: PackageTool,
    pub operations: Operations<Outcome>,
    pub events: Events,
    pub metrics: Metrics,
    pub trigger: Trigger<R>,
    pub memories: Memories,
    /// How often a release that follows the newest version looks for it.
    pub poll_interval: Duration,
    pub is_ours: IsOurs<R>,
}

/// One pass over one release object.
pub async fn reconcile<R>(object: Arc<R>, context: Arc<ReleaseContext<R>>) -> Result<Action, Error>
where
    R: ReleaseFace + kube::Resource<Scope = NamespaceResourceScope>,
{
    if !(context.is_ours)(&object) {
        return Ok(Action::await_change());
    }
    context.metrics.pass(status::kind::<R>());
    pass::Pass::begin(object, context)?.run().await
}

/// Looks at the release objects that a change on a workload cluster concerns.
pub fn on_inventory_change<R: ReleaseFace>(
    index: &ReleaseIndex<R>,
    trigger: &Trigger<R>,
    change: &InventoryChange,
) {
    let concerned = match &change.release {
        Some(release) => index.claiming(&change.cluster, release),
        None => index.on_cluster(&change.cluster),
    };
    for release in concerned {
        trigger.look_at(ObjectRef::from_obj(&*release));
    }
}

/// Forgets what was remembered of an object that is gone.
pub fn forget<R: ReleaseFace>(memories: &Memories, release: &R) {
    memories.forget(&release.uid().unwrap_or_default());
}
