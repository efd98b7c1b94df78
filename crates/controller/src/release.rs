//! Release objects: observe → plan → act, for every kind that is a face of a release.

mod catalogs;
mod grants;
mod inputs;
mod kubernetes;
mod operate;
mod reconcile_state;
mod reconciler;
mod secrets;

use std::{collections::HashSet, sync::Arc, time::Duration};

pub use catalogs::NamedCatalogs;
use chandler_core::release::{Claimant, ReleaseKind};
use chandler_source::Packages;
use chandler_tool::Tools;
use chandler_workload::Connections;
use kube::{Client, ResourceExt as _, core::NamespaceResourceScope, runtime::controller::Action};
pub use operate::{Done, Outcome};
pub use reconcile_state::ReconcileStates;
pub use secrets::Secrets;

use crate::{
    ReconcileError,
    caches::{AllKinds, ReleaseCache},
    clusters::Clusters,
    events::Events,
    metrics::Metrics,
    operations::Operations,
    queue::Trigger,
    references::References,
    sync::Mutex,
};

/// Tells whether a release object is ours to look after.
pub type IsOurs<R> = Box<dyn Fn(&R) -> bool + Send + Sync>;

/// What a pass over a release object works with.
pub struct ReleaseContext<R: ReleaseKind> {
    pub client: Client,
    pub clusters: Clusters,
    pub releases: ReleaseCache<R>,
    pub all_kinds: AllKinds,
    pub references: References,
    pub connections: Connections,
    pub packages: Arc<Packages>,
    pub catalogs: NamedCatalogs,
    pub secrets: Secrets,
    pub tools: Tools,
    pub operations: Operations<Outcome>,
    pub events: Events,
    pub metrics: Metrics,
    pub queue: Trigger<R>,
    pub reconcile_states: ReconcileStates,
    /// How often a release that follows the newest version looks for it.
    pub poll_interval: Duration,
    pub is_ours: IsOurs<R>,
    /// What was told about versions that were published anew.
    pub republished: Mutex<HashSet<String>>,
}

/// One pass over one release object.
pub async fn reconcile<R>(object: Arc<R>, context: Arc<ReleaseContext<R>>) -> Result<Action, ReconcileError>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    if !(context.is_ours)(&object) {
        return Ok(Action::await_change());
    }
    reconciler::Reconciler::begin(object, context)?.run().await
}

/// What is release_caches for release objects while they are there.
#[derive(Clone)]
pub struct ReleaseCaches {
    pub reconcile_states: ReconcileStates,
    pub operations: Operations<Outcome>,
    pub connections: Connections,
}

impl ReleaseCaches {
    /// Lets go of everything release_caches for an object that is gone. It may have gone without our doing: `clusterctl move`
    /// takes finalizers off.
    pub fn forget<R: ReleaseKind>(&self, all_kinds: &AllKinds, gone: &R) {
        let uid = gone.uid().unwrap_or_default();
        self.reconcile_states.forget(&uid);
        self.operations.forget(&uid);
        if let Ok(desired) = gone.desired()
            && !all_kinds.uses(&desired.cluster)
        {
            self.connections.close(&desired.cluster);
        }
    }
}

/// How an object stands among those that claim the same release.
pub fn claimant<R: ReleaseKind>(object: &R) -> Claimant {
    let created = object.meta().creation_timestamp.as_ref().map(|time| time.0);
    let name = format!("{} {}/{}", R::kind(&()), object.namespace().unwrap_or_default(), object.name_any());
    Claimant { created, name, deleting: object.meta().deletion_timestamp.is_some() }
}
