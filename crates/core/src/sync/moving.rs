//! `clusterctl move`: a Sync must not create again what was moved to another management cluster.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::{
    capi::DELETE_FOR_MOVE_ANNOTATION,
    extensions::{GROUP, RESUMED_ANNOTATION, SyncObject, SyncedObject},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{Live, ObjectId};
use crate::conditions;

/// Why a Sync suspends itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// `clusterctl move` deletes this object, or has deleted it.
    Deleting(ObjectId),
    /// This Cluster was written, is still in the folder, and does not exist. It may have been moved.
    ClusterMissing(ObjectId),
}

impl Move {
    /// Returns what happened and what to do.
    pub fn message(&self, sync: &str) -> String {
        match self {
            Self::Deleting(id) => format!(
                "`clusterctl move` deletes {id}, so nothing is applied or deleted any more; if this management cluster \
                 is to manage it again, remove the annotation clusterctl.cluster.x-k8s.io/delete-for-move and run \
                 `chandler resume sync {sync}`; otherwise delete this Sync"
            ),
            Self::ClusterMissing(id) => format!(
                "{id} does not exist any more; it may have been moved to another management cluster, so nothing is \
                 applied or deleted any more; `chandler resume sync {sync}` creates it again; otherwise remove it from \
                 the folder or delete this Sync"
            ),
        }
    }
}

/// Returns whether objects of the inventory are moved. `live` contains the objects that were read, with `None` for those
/// that do not exist; `seen` those that a watch has shown while `clusterctl move` was deleting them.
pub fn moving(
    inventory: &[SyncedObject],
    rendered: &BTreeSet<ObjectId>,
    live: &BTreeMap<ObjectId, Option<Value>>,
    seen: &BTreeSet<ObjectId>,
) -> Option<Move> {
    let objects = || inventory.iter().map(|object| (ObjectId::from(object), object));
    let deleting = |id: &ObjectId| {
        let annotated = |object: &Value| Live(object).is_deleted_for_move();
        seen.contains(id) || live.get(id).is_some_and(|object| object.as_ref().is_some_and(annotated))
    };
    if let Some((id, _)) = objects().find(|(id, _)| deleting(id)) {
        return Some(Move::Deleting(id));
    }
    let missing = |id: &ObjectId, object: &SyncedObject| {
        id.is_cluster() && !object.uid.is_empty() && rendered.contains(id) && live.get(id) == Some(&None)
    };
    objects().find(|(id, object)| missing(id, object)).map(|(id, _)| Move::ClusterMissing(id))
}

/// Returns the move of a Sync that `clusterctl move` deletes itself, because a user has labeled it. Its objects stay.
pub fn own_move(sync: &SyncObject) -> Option<Move> {
    let annotations = sync.metadata.annotations.as_ref()?;
    annotations.get(DELETE_FOR_MOVE_ANNOTATION)?;
    let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
    let name = sync.metadata.name.as_deref().unwrap_or_default();
    Some(Move::Deleting(ObjectId::new(&format!("{GROUP}/v1alpha1"), "Sync", namespace, name)))
}

/// Lets Clusters that do not exist be created again, because a user has resumed the Sync. Others that disappear later may be
/// moved again.
pub fn accept_missing(inventory: &mut [SyncedObject], live: &BTreeMap<ObjectId, Option<Value>>) {
    for object in inventory {
        let id = ObjectId::from(&*object);
        if id.is_cluster() && live.get(&id) == Some(&None) {
            object.uid.clear();
        }
    }
}

/// Whether a Sync has suspended itself because of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveSuspension {
    NotSuspended,
    Suspended,
    /// A user has resumed the Sync after it had suspended itself.
    Resumed,
}

/// Returns whether a Sync has suspended itself because of a move, and whether a user has resumed it since.
pub fn move_suspension(sync: &SyncObject) -> MoveSuspension {
    let conditions = sync.status.as_ref().map(|status| &status.conditions);
    let moving = conditions.and_then(|all| conditions::find(all, "Moving"));
    let Some(moving) = moving.filter(|moving| moving.status == "True") else {
        return MoveSuspension::NotSuspended;
    };
    let annotations = sync.metadata.annotations.as_ref();
    let resumed = annotations.and_then(|all| all.get(RESUMED_ANNOTATION)?.parse::<Timestamp>().ok());
    if resumed.is_some_and(|resumed| resumed > moving.last_transition_time.0) {
        MoveSuspension::Resumed
    } else {
        MoveSuspension::Suspended
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, uid: &str) -> SyncedObject {
        SyncedObject {
            api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
            kind: kind.to_owned(),
            namespace: "fleet".to_owned(),
            name: "blue".to_owned(),
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn moved_objects_suspend_a_sync() {
        let annotated =
            json!({"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}});
        let (class, cluster) = (object("ClusterClass", "1"), object("Cluster", "1"));
        let deleting = |object: &SyncedObject| Some(Move::Deleting(ObjectId::from(object)));
        let missing = Some(Move::ClusterMissing(ObjectId::from(&cluster)));
        // What, object, whether it is in the folder, what was read, whether the watch has seen it.
        let rows = [
            ("exists", &cluster, true, Some(Some(json!({}))), false, None),
            ("annotated", &class, true, Some(Some(annotated.clone())), false, deleting(&class)),
            (
                "annotated, no longer in the folder",
                &class,
                false,
                Some(Some(annotated)),
                false,
                deleting(&class),
            ),
            ("deleted, seen by the watch", &cluster, true, Some(None), true, deleting(&cluster)),
            ("Cluster missing", &cluster, true, Some(None), false, missing),
            ("Cluster removed from the folder", &cluster, false, Some(None), false, None),
            ("Cluster never created", &object("Cluster", ""), true, Some(None), false, None),
            ("another kind missing", &class, true, Some(None), false, None),
            ("not read", &cluster, true, None, false, None),
        ];
        for (what, object, in_folder, read, was_seen, expected) in rows {
            let id = ObjectId::from(object);
            let rendered: BTreeSet<_> = in_folder.then(|| id.clone()).into_iter().collect();
            let seen: BTreeSet<_> = was_seen.then(|| id.clone()).into_iter().collect();
            let live: BTreeMap<_, _> = read.map(|read| (id, read)).into_iter().collect();
            assert_eq!(moving(std::slice::from_ref(object), &rendered, &live, &seen), expected, "{what}");
        }
    }

    #[test]
    fn only_clusters_that_do_not_exist_are_accepted_as_missing() {
        let (cluster, class) = (object("Cluster", "1"), object("ClusterClass", "1"));
        for (read, missing) in [(Some(None), true), (Some(Some(json!({}))), false), (None, false)] {
            let live: BTreeMap<_, _> = [&cluster, &class]
                .into_iter()
                .filter_map(|object| Some((ObjectId::from(object), read.clone()?)))
                .collect();
            let mut inventory = [cluster.clone(), class.clone()];
            accept_missing(&mut inventory, &live);
            assert_eq!(inventory.map(|object| object.uid.is_empty()), [missing, false], "{read:?}");
            let rendered = BTreeSet::from([ObjectId::from(&cluster)]);
            let mut accepted = [cluster.clone()];
            accept_missing(&mut accepted, &live);
            assert_eq!(moving(&accepted, &rendered, &live, &BTreeSet::new()), None, "{read:?}");
        }
    }

    #[test]
    fn a_sync_that_is_moved_itself_applies_and_deletes_nothing() {
        let sync = |annotations: Value| -> SyncObject {
            serde_json::from_value(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
                "metadata": {"name": "base", "namespace": "fleet", "annotations": annotations},
                "spec": {"source": {"sourceRef": {"name": "a"}}, "serviceAccountName": "b"},
            }))
            .unwrap()
        };
        assert_eq!(own_move(&sync(json!(null))), None);
        assert_eq!(own_move(&sync(json!({"other": ""}))), None);
        let moved = own_move(&sync(json!({"clusterctl.cluster.x-k8s.io/delete-for-move": ""}))).unwrap();
        assert!(moved.message("base").contains("deletes Sync fleet/base"), "{moved:?}");
    }

    #[test]
    fn a_sync_is_resumed_by_an_annotation_that_is_newer_than_the_condition() {
        let sync = |status: &str, resumed: Option<&str>| -> SyncObject {
            serde_json::from_value(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
                "metadata": {"name": "base", "annotations": resumed.map(|at| json!({"chandler.dev/resumed-at": at}))},
                "spec": {"source": {"sourceRef": {"name": "a"}}, "serviceAccountName": "b"},
                "status": {"conditions": [{
                    "type": "Moving", "status": status, "reason": "Moving", "message": "",
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                }]},
            }))
            .unwrap()
        };
        let rows = [
            ("False", None, MoveSuspension::NotSuspended),
            ("True", None, MoveSuspension::Suspended),
            ("True", Some("2026-01-01T11:59:59Z"), MoveSuspension::Suspended),
            ("True", Some("2026-01-01T12:00:00.5Z"), MoveSuspension::Resumed),
            ("True", Some("soon"), MoveSuspension::Suspended),
        ];
        for (status, resumed, expected) in rows {
            assert_eq!(move_suspension(&sync(status, resumed)), expected, "{status} {resumed:?}");
        }
    }
}
