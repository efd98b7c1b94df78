//! Whether an object is written.

use super::{Claim, Claims, Live, ObjectId, Ownership, ownership};
use crate::failure::{Category, Failure};

/// What to do with an object in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// Apply it. With a resource version, only if it has not changed since.
    Write {
        resource_version: Option<String>,
    },
    Skip(Skipped),
}

/// Why an object in the folder is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// It is a paused Cluster: a user works on it, or `clusterctl move` moves it.
    PausedCluster,
    /// It belongs to another Sync.
    Taken { by: String },
    /// It may belong to a Sync that the manager does not watch.
    UnknownOwner { label: String },
    /// It is being deleted.
    Deleting,
}

impl Skipped {
    /// Returns the failure to report, or `None` for a paused Cluster, which is no failure.
    pub fn failure(&self, id: &ObjectId) -> Option<Failure> {
        match self {
            Self::PausedCluster => None,
            Self::Taken { by } => Some(Failure::new(
                Category::Conflict,
                format!(
                    "{id} belongs to Sync {by}, which is older; remove it from one of the two directories, or, if \
                     it has moved, make sure that Sync {by} is not suspended and can be applied; everything else \
                     is applied"
                ),
            )),
            Self::UnknownOwner { label } => Some(Failure::new(
                Category::Conflict,
                format!(
                    "{id} has the label chandler.dev/sync={label} of a Sync that this manager does not watch; if that \
                     Sync does not exist any more, remove the label; everything else is applied"
                ),
            )),
            Self::Deleting => Some(Failure::new(
                Category::NotReady,
                format!("{id} is being deleted; it is created again when that has ended"),
            )),
        }
    }
}

/// Decides whether an object is written. `live` is the object on the management cluster.
pub fn decide_write(id: &ObjectId, live: Option<Live<'_>>, own: &Claim, all: &Claims) -> WriteDecision {
    let Some(live) = live else { return WriteDecision::Write { resource_version: None } };
    match ownership(id, live.owner(), own, all) {
        Ownership::Ours => {}
        Ownership::Taken { by } => return WriteDecision::Skip(Skipped::Taken { by }),
        Ownership::Unknown { label } => return WriteDecision::Skip(Skipped::UnknownOwner { label }),
    }
    if id.is_cluster() && live.is_paused_cluster() {
        return WriteDecision::Skip(Skipped::PausedCluster);
    }
    if live.is_deleting() {
        return WriteDecision::Skip(Skipped::Deleting);
    }
    // So that a Cluster that is paused after it was read is not written.
    let resource_version = live.resource_version().filter(|_| id.is_cluster()).map(str::to_owned);
    WriteDecision::Write { resource_version }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn claim(second: i64, name: &str, id: &ObjectId) -> Claim {
        Claim {
            created: Timestamp::from_second(second).ok(),
            namespace: "fleet".to_owned(),
            name: name.to_owned(),
            objects: BTreeSet::from([id.clone()]),
        }
    }

    #[test]
    fn paused_clusters_and_objects_of_older_syncs_are_never_written() {
        let cluster = ObjectId::new("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "blue");
        let map = ObjectId::new("v1", "ConfigMap", "fleet", "blue");
        let write =
            |version: Option<&str>| WriteDecision::Write { resource_version: version.map(str::to_owned) };
        let (paused, deleting) =
            (WriteDecision::Skip(Skipped::PausedCluster), WriteDecision::Skip(Skipped::Deleting));
        let taken = WriteDecision::Skip(Skipped::Taken { by: "fleet/older".to_owned() });
        let version = json!({"resourceVersion": "7"});
        let rows = [
            (&cluster, None, write(None)),
            (&cluster, Some(json!({"metadata": version})), write(Some("7"))),
            (&map, Some(json!({"metadata": version})), write(None)),
            (&cluster, Some(json!({"metadata": version, "spec": {"paused": true}})), paused.clone()),
            (&cluster, Some(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "x"}}})), paused),
            (&map, Some(json!({"metadata": version, "spec": {"paused": true}})), write(None)),
            (&map, Some(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})), deleting),
            (&map, Some(json!({"metadata": {"labels": {"chandler.dev/sync": "fleet.older"}}})), taken),
            (&map, Some(json!({"metadata": {"labels": {"chandler.dev/sync": "fleet.newer"}}})), write(None)),
        ];
        for (id, live, expected) in rows {
            let own = claim(5, "own", id);
            let syncs = vec![claim(1, "older", id), claim(9, "newer", id)];
            let others = Claims { syncs, ..Claims::default() };
            let live: Option<Value> = live;
            assert_eq!(decide_write(id, live.as_ref().map(Live), &own, &others), expected, "{id} {live:?}");
        }
    }
}
