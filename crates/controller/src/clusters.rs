//! The cache of Clusters, and the facts that decisions need about them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_VERSION, ClusterView, ContractReference};
use chandler_core::{
    cluster_deletion, identity::ClusterKey, proceed::PROCEED_ANNOTATION, release::ClusterState,
};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    runtime::reflector::{ObjectRef, Store},
};
use serde_json::Value;

use crate::{ManagementError, error::found};

/// Returns the API resource of Clusters.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(CLUSTER_GROUP, CLUSTER_VERSION, "Cluster"),
        "clusters",
    )
}

/// The kind of classes of Clusters.
pub const CLASS: &str = "ClusterClass";

/// Returns the API resource of ClusterClasses, of the same version as [`resource`].
pub fn class_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(CLUSTER_GROUP, CLUSTER_VERSION, CLASS);
    ApiResource::from_gvk_with_plural(&kind, "clusterclasses")
}

/// The facts about a Cluster that decisions depend on.
#[derive(Clone, Debug)]
pub struct ClusterFacts {
    pub state: ClusterState,
    pub uid: Option<String>,
    pub paused: bool,
    /// The control plane object.
    pub control_plane: Option<ContractReference>,
    /// Until when the deletion waits until the releases that own resources outside of the cluster are uninstalled.
    pub uninstall_deadline: Option<Timestamp>,
}

impl ClusterFacts {
    /// Returns whether the Cluster is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.state == ClusterState::Deleting
    }

    /// Returns whether the Cluster is being deleted and still waits for uninstalls.
    pub fn waits_for_uninstalls(&self, now: Timestamp) -> bool {
        self.uninstall_deadline.is_some_and(|until| now < until)
    }
}

/// The watched Clusters.
#[derive(Clone, Debug)]
pub struct Clusters {
    store: Store<DynamicObject>,
    /// How long the deletion of a Cluster waits until the releases that own resources outside of it are uninstalled.
    uninstall_timeout: Duration,
}

impl Clusters {
    pub fn new(store: Store<DynamicObject>, uninstall_timeout: Duration) -> Self {
        Self { store, uninstall_timeout }
    }

    pub fn get(&self, key: &ClusterKey) -> Option<Arc<DynamicObject>> {
        self.store.get(&reference(key))
    }

    pub fn store(&self) -> Store<DynamicObject> {
        self.store.clone()
    }

    /// Returns the Clusters of a namespace, sorted by name.
    pub fn in_namespace(&self, namespace: &str) -> BTreeMap<ClusterKey, Arc<DynamicObject>> {
        let own = self.store.state_filter(|cluster| cluster.metadata.namespace.as_deref() == Some(namespace));
        own.into_iter().filter_map(|cluster| Some((key(&cluster)?, cluster))).collect()
    }

    pub fn facts(&self, key: &ClusterKey) -> ClusterFacts {
        self.get(key).map_or(
            ClusterFacts {
                state: ClusterState::Missing,
                uid: None,
                paused: false,
                control_plane: None,
                uninstall_deadline: None,
            },
            |cluster| facts(&cluster, self.uninstall_timeout),
        )
    }
}

fn uninstall_deadline(cluster: &DynamicObject, timeout: Duration) -> Option<Timestamp> {
    let deleted = cluster.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let annotation = cluster.annotations().get(PROCEED_ANNOTATION).map(String::as_str);
    cluster_deletion::uninstall_deadline(deleted, annotation, timeout)
}

/// Reads a Cluster from the API server. `None` means that it does not exist, or that the API server does not serve Clusters.
pub async fn read(client: &Client, cluster: &ClusterKey) -> Result<Option<DynamicObject>, ManagementError> {
    // A request without a name would list all Clusters.
    if cluster.name.is_empty() {
        return Ok(None);
    }
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &cluster.namespace, &resource());
    let read = found(api.get(&cluster.name).await);
    read.map_err(|source| ManagementError::Read { what: format!("Cluster {cluster}"), source })
}

/// Reads the Clusters of a namespace from the API server. There are none if it does not serve Clusters.
pub async fn list(client: &Client, namespace: &str) -> Result<Vec<DynamicObject>, ManagementError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    let listed = found(api.list(&ListParams::default()).await);
    let listed = listed
        .map_err(|source| ManagementError::Read { what: format!("the Clusters of {namespace}"), source })?;
    Ok(listed.map(|listed| listed.items).unwrap_or_default())
}

/// Returns the JSON form of an object.
pub fn as_json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Returns the reference of a Cluster for queues and stores.
pub fn reference(key: &ClusterKey) -> ObjectRef<DynamicObject> {
    ObjectRef::new_with(&key.name, resource()).within(&key.namespace)
}

/// Returns the key of a Cluster.
pub fn key(cluster: &DynamicObject) -> Option<ClusterKey> {
    Some(ClusterKey::new(cluster.namespace()?, cluster.name_any()))
}

/// Returns whether the release objects of a Cluster must not be changed, because it is paused or being deleted.
pub fn is_paused_or_deleting(cluster: &DynamicObject) -> bool {
    let view = ClusterView::of(&cluster.data).unwrap_or_default();
    view.spec.paused || cluster.metadata.deletion_timestamp.is_some()
}

/// Returns whether the Cluster that was read is the cached one, and its objects may be changed.
pub fn is_current(cached: &DynamicObject, read: &DynamicObject) -> bool {
    read.uid() == cached.uid() && !is_paused_or_deleting(read)
}

fn facts(cluster: &DynamicObject, uninstall_timeout: Duration) -> ClusterFacts {
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
        uid: cluster.metadata.uid.clone(),
        paused: view.spec.paused,
        control_plane: view.spec.control_plane_ref,
        uninstall_deadline: uninstall_deadline(cluster, uninstall_timeout),
    }
}

#[cfg(test)]
pub mod tests {
    use kube::runtime::{reflector, watcher};
    use serde_json::json;

    use super::*;
    use crate::fake_api_server::FakeApiServer;

    /// The path of [`cluster`].
    pub const PATH: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet/clusters/blue";

    /// Cluster `fleet/blue`.
    pub fn cluster() -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "blue", "namespace": "fleet", "uid": "7"},
            "spec": {"paused": false},
        })
    }

    /// Returns a cache that contains at most this Cluster.
    pub fn cached(cluster: Option<Value>) -> Clusters {
        let mut writer = reflector::store::Writer::new(resource());
        writer.apply_watcher_event(&watcher::Event::Init);
        if let Some(cluster) = cluster {
            writer.apply_watcher_event(&watcher::Event::InitApply(serde_json::from_value(cluster).unwrap()));
        }
        writer.apply_watcher_event(&watcher::Event::InitDone);
        Clusters::new(writer.as_reader(), Duration::from_mins(1))
    }

    #[tokio::test]
    async fn a_cluster_of_a_kind_that_is_not_served_does_not_exist() {
        let server = FakeApiServer::default();
        server.delete_crds();
        assert!(read(&server.client(), &ClusterKey::new("fleet", "blue")).await.unwrap().is_none());
        assert!(read(&server.client(), &ClusterKey::new("fleet", "")).await.unwrap().is_none());
        server.fail_reads(PATH);
        assert!(read(&server.client(), &ClusterKey::new("fleet", "blue")).await.is_err());
    }
}
