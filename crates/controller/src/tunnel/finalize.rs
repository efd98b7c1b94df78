//! Finalizes a ClusterTunnel that is being deleted.

use chandler_api::{
    capi::DELETE_FOR_MOVE_ANNOTATION,
    tunnel::{ClusterTunnel, TUNNEL_FINALIZER},
};
use kube::{Client, ResourceExt as _, api::DynamicObject};

use super::{TunnelContext, cluster_key, facts, kubeconfig};
use crate::{ManagementError, ReconcileError, clusters, status};

/// What happens to a ClusterTunnel that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalize {
    /// It is reconciled as before: the Cluster is being deleted and still has to be reached.
    Serve,
    /// Nothing is changed, because the Cluster is paused.
    Wait,
    /// The kubeconfig of the Cluster loses its proxy, then the finalizer is removed.
    ConnectDirectly,
    RemoveFinalizer,
    /// The finalizer is removed if the API server does not have the Cluster either: see [`cluster_exists`].
    RemoveFinalizerIfGone,
}

/// Decides what happens to a ClusterTunnel that is being deleted. `clusterctl move` has copied it, with its id, so that its
/// agents are accepted at the other management cluster. `cluster` is the cached one.
pub fn decide(tunnel: &ClusterTunnel, cluster: Option<&DynamicObject>) -> Finalize {
    if tunnel.annotations().contains_key(DELETE_FOR_MOVE_ANNOTATION) {
        return Finalize::RemoveFinalizer;
    }
    match cluster.filter(|cluster| is_own(tunnel, cluster)).map(facts) {
        // The Cluster is gone, or another one has its name, or the cache does not show it yet.
        None => Finalize::RemoveFinalizerIfGone,
        Some(cluster) if cluster.deleting => Finalize::Serve,
        Some(cluster) if cluster.paused => Finalize::Wait,
        Some(_) => Finalize::ConnectDirectly,
    }
}

/// Returns whether a Cluster with the name of a ClusterTunnel's Cluster is that Cluster.
fn is_own(tunnel: &ClusterTunnel, cluster: &DynamicObject) -> bool {
    owner_uid(tunnel).is_none_or(|uid| cluster.uid().as_deref() == Some(uid))
}

/// Returns whether the API server has the Cluster of a ClusterTunnel. The cache of Clusters may be older than the ClusterTunnel.
pub async fn cluster_exists(client: &Client, tunnel: &ClusterTunnel) -> Result<bool, ManagementError> {
    let cluster = clusters::read(client, &cluster_key(tunnel)).await?;
    Ok(cluster.is_some_and(|cluster| is_own(tunnel, &cluster)))
}

/// Returns the uid of the Cluster that owns a ClusterTunnel.
pub fn owner_uid(tunnel: &ClusterTunnel) -> Option<&str> {
    let name = &tunnel.spec.cluster_name;
    let mut owners = tunnel.owner_references().iter();
    owners.find(|owner| owner.kind == "Cluster" && owner.name == *name).map(|owner| owner.uid.as_str())
}

/// Removes the proxy of the kubeconfig.
pub async fn connect_directly(context: &TunnelContext, tunnel: &ClusterTunnel) -> Result<(), ReconcileError> {
    if kubeconfig::connect_directly(&context.client, &cluster_key(tunnel)).await? {
        context.metrics.kubeconfig_written("removed");
        context.events.normal(
            tunnel,
            "KubeconfigDirect",
            "Removed the hub from the kubeconfig of the Cluster",
        );
    }
    Ok(())
}

pub async fn remove_finalizer(context: &TunnelContext, tunnel: &ClusterTunnel) -> Result<(), ReconcileError> {
    Ok(status::remove_finalizer(&context.client, tunnel, TUNNEL_FINALIZER).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(metadata: &Value, paused: bool) -> DynamicObject {
        let mut object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "blue", "namespace": "fleet", "uid": "1"}, "spec": {"paused": paused},
        });
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn tunnel(annotations: &Value) -> ClusterTunnel {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ClusterTunnel",
            "metadata": {
                "name": "blue", "namespace": "fleet", "annotations": annotations,
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [
                    {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "blue", "uid": "1"},
                ],
            },
            "spec": {"id": "0".repeat(32), "epoch": 1, "clusterName": "blue", "hubs": []},
        }))
        .unwrap()
    }

    #[test]
    fn a_tunnel_is_served_until_its_cluster_is_gone() {
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let (plain, moved) = (tunnel(&json!({})), tunnel(&json!({DELETE_FOR_MOVE_ANNOTATION: ""})));
        let rows = [
            (&plain, None, Finalize::RemoveFinalizerIfGone),
            (&plain, Some(cluster(&json!({}), false)), Finalize::ConnectDirectly),
            (&plain, Some(cluster(&json!({}), true)), Finalize::Wait),
            (&plain, Some(cluster(&deleting, false)), Finalize::Serve),
            (&plain, Some(cluster(&deleting, true)), Finalize::Serve),
            (&plain, Some(cluster(&json!({"uid": "2"}), false)), Finalize::RemoveFinalizerIfGone),
            (&moved, None, Finalize::RemoveFinalizer),
            (&moved, Some(cluster(&json!({}), true)), Finalize::RemoveFinalizer),
            (&moved, Some(cluster(&deleting, true)), Finalize::RemoveFinalizer),
        ];
        for (number, (tunnel, cluster, expected)) in rows.into_iter().enumerate() {
            assert_eq!(decide(tunnel, cluster.as_ref()), expected, "row {number}");
        }
    }
}
