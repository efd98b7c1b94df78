//! The queues of tunnels, and which events enqueue what.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use chandler_api::tunnel::ClusterTunnel;
use chandler_core::{
    identity::ClusterKey,
    tunnel::{TunnelCluster, tunnel_problem},
};
use kube::{api::DynamicObject, runtime::reflector::ObjectRef};

use super::{CLUSTER_KIND, KIND, cluster_key, facts};
use crate::{
    clusters,
    locks::Mutex,
    metrics::Metrics,
    queue::{Queue, Trigger},
    watch::Change,
};

/// The queues of tunnels. Before they are activated, events are ignored. Clones share the queues.
#[derive(Clone, Default)]
pub struct TunnelQueues(Arc<OnceLock<Active>>);

struct Active {
    clusters: Trigger<DynamicObject>,
    tunnels: Trigger<ClusterTunnel>,
    known: Mutex<Known>,
}

/// What the last events showed, because Clusters change often, and few of these changes affect a tunnel.
#[derive(Default)]
struct Known {
    clusters: HashMap<ClusterKey, TunnelCluster>,
    problems: HashMap<ClusterKey, Option<String>>,
}

/// The enqueued objects.
pub struct Enqueued {
    pub clusters: Queue<DynamicObject>,
    pub tunnels: Queue<ClusterTunnel>,
}

impl TunnelQueues {
    /// Creates the queues. From now on, events are routed to them.
    pub fn activate(&self, metrics: &Metrics) -> Enqueued {
        let (clusters, cluster_queue) = Trigger::new(CLUSTER_KIND, metrics);
        let (tunnels, tunnel_queue) = Trigger::new(KIND, metrics);
        // Fails only if it is called twice.
        let _ = self.0.set(Active { clusters, tunnels, known: Mutex::default() });
        Enqueued { clusters: cluster_queue, tunnels: tunnel_queue }
    }

    /// Handles a change of a Cluster: it may need a ClusterTunnel or none, or another kubeconfig.
    pub fn on_cluster(&self, change: &Change<'_, DynamicObject>) {
        let Some(active) = self.0.get() else { return };
        let Some(key) = clusters::key(change.object()) else { return };
        let changed = match change {
            Change::Applied(cluster) => {
                let facts = facts(cluster);
                let before = active.known.lock().clusters.insert(key.clone(), facts.clone());
                before != Some(facts)
            }
            Change::Deleted(_) => {
                active.known.lock().clusters.remove(&key);
                true
            }
        };
        if changed {
            active.enqueue(&key);
        }
    }

    /// Handles a change of a ClusterTunnel. Returns its Cluster if the conditions of that have to be computed again.
    pub fn on_tunnel(&self, change: &Change<'_, ClusterTunnel>) -> Option<ClusterKey> {
        let active = self.0.get()?;
        let key = cluster_key(change.object());
        active.enqueue(&key);
        let mut known = active.known.lock();
        let changed = match change {
            Change::Applied(tunnel) => {
                let problem = tunnel_problem(Some(tunnel));
                known.problems.insert(key.clone(), problem.clone()) != Some(problem)
            }
            Change::Deleted(_) => known.problems.remove(&key).is_some(),
        };
        changed.then_some(key)
    }

    /// Enqueues the ClusterTunnel of a Cluster.
    pub fn enqueue(&self, cluster: &ClusterKey) {
        if let Some(active) = self.0.get() {
            active.enqueue(cluster);
        }
    }
}

impl Active {
    /// Enqueues the Cluster, which costs nothing if its ClusterTunnel exists, and the ClusterTunnel.
    fn enqueue(&self, key: &ClusterKey) {
        self.clusters.enqueue(clusters::reference(key));
        self.tunnels.enqueue(ObjectRef::new(&key.name).within(&key.namespace));
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::tunnel::TUNNEL_LABEL;
    use serde_json::{Value, json};

    use super::*;

    fn cluster(labels: &Value, spec: &Value, status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "blue", "namespace": "fleet", "labels": labels}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn tunnel(status: &Value) -> ClusterTunnel {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ClusterTunnel",
            "metadata": {"name": "blue", "namespace": "fleet"},
            "spec": {"id": "0".repeat(32), "epoch": 1, "clusterName": "blue", "hubs": []}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn only_changes_of_a_cluster_that_matter_enqueue_its_tunnel() {
        let (metrics, queues) = (Metrics::new(), TunnelQueues::default());
        let plain = cluster(&json!({}), &json!({}), &json!({}));
        queues.on_cluster(&Change::Applied(&plain));
        let mut enqueued = queues.activate(&metrics).tunnels;
        assert!(enqueued.take_one().is_none(), "without tunnels, events are ignored");
        let label = json!({TUNNEL_LABEL: "enabled"});
        let endpoint = json!({"controlPlaneEndpoint": {"host": "10.0.0.7", "port": 6443}});
        let rows = [
            (plain.clone(), true),
            (plain, false),
            (cluster(&json!({"color": "blue"}), &json!({}), &json!({"phase": "Provisioned"})), false),
            (cluster(&label, &json!({}), &json!({})), true),
            (cluster(&label, &endpoint, &json!({})), true),
            (cluster(&label, &endpoint, &json!({"phase": "Provisioned"})), false),
        ];
        for (number, (cluster, expected)) in rows.iter().enumerate() {
            queues.on_cluster(&Change::Applied(cluster));
            assert_eq!(enqueued.take_one().is_some(), *expected, "row {number}");
        }
        queues.on_cluster(&Change::Deleted(&rows[0].0));
        assert!(enqueued.take_one().is_some(), "its finalizer can be removed");
    }

    #[test]
    fn a_connection_changes_the_conditions_of_the_cluster() {
        let (metrics, queues) = (Metrics::new(), TunnelQueues::default());
        let _enqueued = queues.activate(&metrics);
        let condition = |status: &str| {
            json!({"conditions": [{
                "type": "Connected", "status": status, "reason": "Connected", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]})
        };
        let rows = [
            (json!({}), true),
            (json!({"observedGeneration": 1}), false),
            (condition("True"), true),
            (condition("True"), false),
            (condition("False"), true),
        ];
        for (number, (status, expected)) in rows.iter().enumerate() {
            let key = queues.on_tunnel(&Change::Applied(&tunnel(status)));
            assert_eq!(key.is_some(), *expected, "row {number}");
        }
        assert!(queues.on_tunnel(&Change::Deleted(&tunnel(&json!({})))).is_some());
    }
}
