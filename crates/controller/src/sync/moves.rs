//! Remembers which Clusters `clusterctl move` deletes, and which are paused. A Cluster that was moved is gone before a Sync
//! could read its annotation.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::capi::CLUSTER_GROUP;
use chandler_core::sync::{Live, ObjectId};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::json;

use crate::{locks::Mutex, watch::Change};

/// What a Sync needs to know about a Cluster at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    moving: bool,
    paused: bool,
}

/// The Clusters that are moved or paused.
#[derive(Debug, Default)]
pub struct ClusterMoves(Mutex<BTreeMap<ObjectId, State>>);

impl ClusterMoves {
    /// Records a watch event. Returns the Cluster if Syncs that have written it have to be reconciled.
    pub fn on_cluster(&self, change: &Change<'_, DynamicObject>) -> Option<ObjectId> {
        let cluster = change.object();
        let id = ObjectId {
            group: CLUSTER_GROUP.to_owned(),
            kind: "Cluster".to_owned(),
            namespace: cluster.namespace()?,
            name: cluster.name_any(),
        };
        let value = json!({
            "metadata": {"annotations": cluster.annotations()},
            "spec": {"paused": cluster.data.pointer("/spec/paused")},
        });
        let live = Live(&value);
        let mut states = self.0.lock();
        let before = states.get(&id).copied().unwrap_or_default();
        let now = match change {
            Change::Applied(_) => {
                State { moving: live.is_deleted_for_move(), paused: live.is_paused_cluster() }
            }
            // Once it is deleted by a move, it stays so until a user resumes the Sync or creates it again.
            Change::Deleted(_) => {
                State { moving: before.moving || live.is_deleted_for_move(), paused: false }
            }
        };
        if now == State::default() {
            states.remove(&id);
        } else {
            states.insert(id.clone(), now);
        }
        (now != before).then_some(id)
    }

    /// Returns those of `objects` that `clusterctl move` deletes or has deleted.
    pub fn seen(&self, objects: impl Iterator<Item = ObjectId>) -> BTreeSet<ObjectId> {
        let states = self.0.lock();
        objects.filter(|id| states.get(id).is_some_and(|state| state.moving)).collect()
    }

    /// Forgets Clusters whose Sync was resumed.
    pub fn forget(&self, objects: impl Iterator<Item = ObjectId>) {
        let mut states = self.0.lock();
        for id in objects {
            states.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const API_VERSION: &str = "cluster.x-k8s.io/v1beta2";

    fn cluster(annotations: &Value, paused: bool) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": {"name": "blue", "namespace": "fleet", "annotations": annotations},
            "spec": {"paused": paused},
        }))
        .unwrap()
    }

    #[test]
    fn a_cluster_that_was_moved_is_remembered_until_the_sync_is_resumed() {
        let moves = ClusterMoves::default();
        let id = ObjectId::new(API_VERSION, "Cluster", "fleet", "blue");
        let seen = || moves.seen([id.clone()].into_iter()).len();
        let (plain, paused) = (cluster(&json!({}), false), cluster(&json!({}), true));
        let annotated = cluster(&json!({"clusterctl.cluster.x-k8s.io/delete-for-move": ""}), true);
        // Event, whether Syncs are reconciled, number of Clusters that are moved.
        let rows = [
            (Change::Applied(&plain), false, 0),
            (Change::Applied(&paused), true, 0),
            (Change::Applied(&paused), false, 0),
            (Change::Applied(&annotated), true, 1),
            (Change::Deleted(&annotated), true, 1),
            (Change::Applied(&plain), true, 0),
            (Change::Deleted(&plain), false, 0),
            (Change::Deleted(&annotated), true, 1),
        ];
        for (number, (change, reconciled, count)) in rows.iter().enumerate() {
            assert_eq!(moves.on_cluster(change).is_some(), *reconciled, "row {number}");
            assert_eq!(seen(), *count, "row {number}");
        }
        moves.forget([id.clone()].into_iter());
        assert_eq!(seen(), 0);
    }
}
