//! The identity of an object on the management cluster.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use chandler_api::extensions::{ConfirmedObject, HeldObject, SyncedObject};
use serde_json::Value;

use super::Live;
use crate::health::group;

/// Group, kind, namespace and name of an object. The version is no part of it: all versions show the same object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub group: String,
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group(api_version).to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns whether this is a Cluster of Cluster API.
    pub fn is_cluster(&self) -> bool {
        self.kind == "Cluster" && self.group == chandler_api::capi::CLUSTER_GROUP
    }
}

impl From<&SyncedObject> for ObjectId {
    fn from(object: &SyncedObject) -> Self {
        Self::new(&object.api_version, &object.kind, &object.namespace, &object.name)
    }
}

impl From<&HeldObject> for ObjectId {
    fn from(object: &HeldObject) -> Self {
        Self::new(&object.api_version, &object.kind, &object.namespace, &object.name)
    }
}

impl From<&ConfirmedObject> for ObjectId {
    fn from(object: &ConfirmedObject) -> Self {
        Self::new(&object.api_version, &object.kind, &object.namespace, &object.name)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// Returns the inventory to record before anything is written: what is in it already, and everything that may be written
/// now. An object in both keeps its uid and gets the version that is written.
pub fn merge_inventory<'a>(
    recorded: &[SyncedObject],
    rendered: impl IntoIterator<Item = &'a SyncedObject>,
) -> Vec<SyncedObject> {
    let known = recorded.iter().map(|object| (ObjectId::from(object), object.clone()));
    let mut merged: BTreeMap<_, _> = known.collect();
    for object in rendered {
        match merged.entry(ObjectId::from(object)) {
            Entry::Occupied(mut known) => known.get_mut().api_version.clone_from(&object.api_version),
            Entry::Vacant(vacant) => {
                vacant.insert(object.clone());
            }
        }
    }
    merged.into_values().collect()
}

/// Adds the uids of objects that exist and carry the label of the Sync. A manager that was killed, or ran out of time, after it
/// had created an object has not recorded its uid, without which a Cluster that is moved would be created again.
pub fn add_uids(inventory: &mut [SyncedObject], live: &BTreeMap<ObjectId, Option<Value>>, label: &str) {
    for object in inventory.iter_mut().filter(|object| object.uid.is_empty()) {
        let live = live.get(&ObjectId::from(&*object)).and_then(Option::as_ref).map(Live);
        let own = live.filter(|live| live.owner() == Some(label));
        if let Some(uid) = own.and_then(Live::uid) {
            uid.clone_into(&mut object.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, name: &str, uid: &str) -> SyncedObject {
        SyncedObject {
            api_version: api_version.to_owned(),
            kind: "Widget".to_owned(),
            namespace: "fleet".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn objects_are_the_same_in_all_versions_of_a_group() {
        let id = |api_version| ObjectId::new(api_version, "Cluster", "fleet", "blue");
        assert_eq!(id("cluster.x-k8s.io/v1beta1"), id("cluster.x-k8s.io/v1beta2"));
        assert_ne!(id("cluster.x-k8s.io/v1beta1"), id("fleet.cattle.io/v1alpha1"));
        assert!(id("cluster.x-k8s.io/v1beta2").is_cluster() && !id("fleet.cattle.io/v1alpha1").is_cluster());
        assert_eq!(id("v1").to_string(), "Cluster fleet/blue");
        assert_eq!(ObjectId::new("v1", "Namespace", "", "fleet").to_string(), "Namespace fleet");
    }

    #[test]
    fn the_inventory_contains_what_was_and_what_will_be_written() {
        let recorded = [object("x.example/v1", "b", "1"), object("x.example/v1", "gone", "2")];
        let rendered = [object("x.example/v2", "b", ""), object("x.example/v2", "a", "")];
        let expected = [
            object("x.example/v2", "a", ""),
            object("x.example/v2", "b", "1"),
            object("x.example/v1", "gone", "2"),
        ];
        assert_eq!(merge_inventory(&recorded, &rendered), expected);
    }

    #[test]
    fn the_uids_of_own_objects_that_exist_are_added() {
        let live = |uid: &str, label: &str| {
            Some(json!({"metadata": {"uid": uid, "labels": {"chandler.dev/sync": label}}}))
        };
        let objects = ["own", "foreign", "missing", "unread", "known"];
        let mut inventory = objects.map(|name| object("v1", name, if name == "known" { "1" } else { "" }));
        let id = |name: &str| ObjectId::from(&object("v1", name, ""));
        let found = BTreeMap::from([
            (id("own"), live("7", "fleet.base")),
            (id("foreign"), live("8", "fleet.other")),
            (id("missing"), None),
            (id("known"), live("9", "fleet.base")),
        ]);
        add_uids(&mut inventory, &found, "fleet.base");
        assert_eq!(inventory.map(|object| object.uid), ["7", "", "", "", "1"]);
    }
}
