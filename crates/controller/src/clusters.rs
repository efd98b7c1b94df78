//! The Clusters of the management cluster, as a store and in the words of the decisions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_VERSION, ClusterView, ContractReference};
use chandler_core::{
    identity::ClusterKey,
    proceed::{PROCEED_ANNOTATION, proceeds},
    release::ClusterState,
};
use jiff::Timestamp;
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::reflector::{ObjectRef, Store},
};
use serde_json::Value;

/// How long the deletion of a Cluster waits for releases that hold something outside of it.
const REMOVAL_LIMIT: Duration = Duration::from_mins(10);

/// The Cluster kind.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(CLUSTER_GROUP, CLUSTER_VERSION, "Cluster"),
        "clusters",
    )
}

/// What the decisions need to know of a Cluster.
#[derive(Clone, Debug)]
pub struct ClusterFacts {
    pub state: ClusterState,
    pub paused: bool,
    /// The object that runs the control plane.
    pub control_plane: Option<ContractReference>,
    /// Until when its deletion waits for releases that hold something outside of it.
    removals_until: Option<Timestamp>,
}

impl ClusterFacts {
    /// Whether the Cluster is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.state == ClusterState::Deleting
    }

    /// Whether the Cluster is deleting, and there is still time to remove from it what holds something elsewhere.
    pub fn waits_for_removals(&self, now: Timestamp) -> bool {
        self.removals_until.is_some_and(|until| now < until)
    }
}

/// All Clusters.
#[derive(Clone, Debug)]
pub struct Clusters(Store<DynamicObject>);

impl Clusters {
    pub fn new(store: Store<DynamicObject>) -> Self {
        Self(store)
    }

    pub fn get(&self, key: &ClusterKey) -> Option<Arc<DynamicObject>> {
        self.0.get(&reference(key))
    }

    pub fn store(&self) -> Store<DynamicObject> {
        self.0.clone()
    }

    /// The Clusters of a namespace, in the order of their names.
    pub fn in_namespace(&self, namespace: &str) -> BTreeMap<ClusterKey, Arc<DynamicObject>> {
        let own = self.0.state_filter(|cluster| cluster.metadata.namespace.as_deref() == Some(namespace));
        own.into_iter().filter_map(|cluster| Some((key(&cluster)?, cluster))).collect()
    }

    pub fn facts(&self, key: &ClusterKey) -> ClusterFacts {
        self.get(key).map_or(
            ClusterFacts {
                state: ClusterState::Missing,
                paused: false,
                control_plane: None,
                removals_until: None,
            },
            |cluster| facts(&cluster),
        )
    }
}

fn removals_until(cluster: &DynamicObject) -> Option<Timestamp> {
    let deleted = cluster.metadata.deletion_timestamp.as_ref()?.0;
    let word = cluster.annotations().get(PROCEED_ANNOTATION).map(String::as_str);
    if proceeds(word, "BeforeClusterDelete") { None } else { deleted.checked_add(REMOVAL_LIMIT).ok() }
}

/// An object as the API server returns it.
pub fn as_json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// A Cluster, for queues and stores.
pub fn reference(key: &ClusterKey) -> ObjectRef<DynamicObject> {
    ObjectRef::new_with(&key.name, resource()).within(&key.namespace)
}

/// The key of a Cluster.
pub fn key(cluster: &DynamicObject) -> Option<ClusterKey> {
    Some(ClusterKey::new(cluster.namespace()?, cluster.name_any()))
}

/// Whether a Cluster's release objects stay as they are: it is deleting, or paused.
pub fn is_left_alone(cluster: &DynamicObject) -> bool {
    let facts = facts(cluster);
    facts.paused || facts.state == ClusterState::Deleting
}

fn facts(cluster: &DynamicObject) -> ClusterFacts {
    let view = ClusterView::of(&cluster.data).unwrap_or_default();
    let state = if cluster.metadata.deletion_timestamp.is_some() {
        ClusterState::Deleting
    } else if view.status.initialization.control_plane_initialized {
        ClusterState::Available
    } else {
        ClusterState::ControlPlaneNotInitialized
    };
    ClusterFacts {
        state,
        paused: view.spec.paused,
        control_plane: view.spec.control_plane_ref,
        removals_until: removals_until(cluster),
    }
}
