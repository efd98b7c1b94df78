//! Placements: from clusters and a template to release objects, for every kind that is a face of a placement.

mod pass;
mod values;

use std::sync::Arc;

use chandler_core::{identity::ClusterKey, naming, placement::PlacementFace};
use chandler_tool::PackageTool;
use kube::{
    Client, ResourceExt as _,
    core::{NamespaceResourceScope, Selector, SelectorExt as _},
    runtime::{
        controller::Action,
        reflector::{ObjectRef, Store},
    },
};

use crate::{
    Error, clusters::Clusters, events::Events, metrics::Metrics, queue::Trigger, references::References,
    status,
};

/// What a pass over a placement works with.
pub struct PlacementContext<P: PlacementFace> {
    pub client: Client,
    pub clusters: Clusters,
    pub releases: Store<P::Release>,
    pub references: References,
    pub tool: PackageTool,
    pub events: Events,
    pub metrics: Metrics,
}

/// One pass over one placement.
pub async fn reconcile<P>(object: Arc<P>, context: Arc<PlacementContext<P>>) -> Result<Action, Error>
where
    P: PlacementFace + kube::Resource<Scope = NamespaceResourceScope>,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    context.metrics.pass(status::kind::<P>());
    pass::Pass { object, context }.run().await
}

/// Looks at the placement that a release object belongs to.
pub fn on_release_change<P: PlacementFace>(placements: &Trigger<P>, release: &P::Release) {
    let kind = P::kind(&());
    let owner = release.owner_references().iter().find(|owner| owner.kind == kind);
    if let (Some(owner), Some(namespace)) = (owner, release.namespace()) {
        placements.look_at(ObjectRef::new(&owner.name).within(&namespace));
    }
}

/// Looks at the placements that a Cluster concerns: those that want it, and those that have a release on it.
pub fn on_cluster_change<P: PlacementFace>(
    placements: &Store<P>,
    releases: &Store<P::Release>,
    trigger: &Trigger<P>,
    cluster: &ClusterKey,
    labels: &std::collections::BTreeMap<String, String>,
) {
    let on_it = releases.state_filter(|release| P::cluster_of(release).as_ref() == Some(cluster));
    let owners: Vec<_> = on_it.iter().filter_map(|release| release.labels().get(P::OWNER_LABEL)).collect();
    let concerned = placements.state_filter(|placement| {
        placement.namespace().as_deref() == Some(&cluster.namespace)
            && (owners.contains(&&naming::label_value(&placement.name_any()))
                || Selector::try_from(placement.selector().clone())
                    .is_ok_and(|selector| selector.matches(labels)))
    });
    for placement in concerned {
        trigger.look_at(ObjectRef::from_obj(&*placement));
    }
}
