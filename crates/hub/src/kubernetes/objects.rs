//! The ClusterTunnels as the watch shows them, and the directory that follows from them. Pure.

use std::{collections::HashMap, sync::Arc};

use chandler_api::tunnel::{ClusterTunnel, TunnelAgent, TunnelJoin};
use chandler_tunnel::TunnelKey;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource as _, ResourceExt as _};

use crate::directory::{Directory, HubAddress, TunnelEntry};

/// The part of a status that one replica of the hub owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnStatus {
    /// Sorted by connection.
    pub agents: Vec<TunnelAgent>,
    pub join: Option<TunnelJoin>,
}

impl OwnStatus {
    /// Returns what the status of an object says about the replica `hub`.
    fn observed(object: &ClusterTunnel, hub: &str) -> Self {
        let Some(status) = &object.status else { return Self::default() };
        let mut agents: Vec<_> = status.agents.iter().filter(|agent| agent.hub == hub).cloned().collect();
        agents.sort_by(|one, other| one.connection.cmp(&other.connection));
        Self { agents, join: status.joins.iter().find(|join| join.hub == hub).cloned() }
    }
}

/// A ClusterTunnel, as the hub needs it.
#[derive(Clone, Debug)]
pub struct KnownTunnel {
    pub entry: TunnelEntry,
    pub reference: ObjectReference,
    /// What the status says about this replica.
    pub observed: OwnStatus,
}

/// Namespace and name of a ClusterTunnel.
type Key = (String, String);

/// The ClusterTunnels.
#[derive(Debug, Default)]
pub struct Objects {
    /// The name of this replica.
    hub: String,
    listed: bool,
    known: HashMap<Key, KnownTunnel>,
    /// The objects of a list that is not complete yet.
    listing: HashMap<Key, KnownTunnel>,
    served: Arc<Directory>,
}

impl Objects {
    pub fn new(hub: String) -> Self {
        Self { hub, ..Self::default() }
    }

    /// Begins a new list. Until it is complete, the old one stays in use.
    pub fn begin_list(&mut self) {
        self.listing.clear();
    }

    /// Adds an object to the new list.
    pub fn list(&mut self, object: &ClusterTunnel) {
        if let Some(known) = self.read(object) {
            self.listing.insert(key(object), known);
        }
    }

    /// Keeps an object in the new list that could not be decoded, if it was decoded before: its agents stay connected.
    pub fn list_undecodable(&mut self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(known) = self.known.get(&key) {
            self.listing.insert(key, known.clone());
        }
    }

    /// Ends the list. Returns the new directory.
    pub fn end_list(&mut self) -> Arc<Directory> {
        self.known = std::mem::take(&mut self.listing);
        self.listed = true;
        self.build()
    }

    /// Adds or changes an object. Returns the new directory if it differs.
    pub fn apply(&mut self, object: &ClusterTunnel) -> Option<Arc<Directory>> {
        let known = self.read(object)?;
        let entry = known.entry.clone();
        let before = self.known.insert(key(object), known);
        // The status changes often, and most of it is not part of the directory.
        let same = before.is_some_and(|before| before.entry == entry);
        (self.listed && !same).then(|| self.build())
    }

    /// Removes an object. Returns the new directory if it differs.
    pub fn delete(&mut self, namespace: String, name: String) -> Option<Arc<Directory>> {
        self.known.remove(&(namespace, name))?;
        self.listed.then(|| self.build())
    }

    /// Returns whether the objects are known.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Returns the object that serves a tunnel.
    pub fn of(&self, tunnel: TunnelKey) -> Option<&KnownTunnel> {
        let entry = self.served.owned(tunnel)?;
        self.known.get(&(entry.namespace.clone(), entry.name.clone()))
    }

    /// Returns the served tunnels and what their status says about this replica.
    pub fn observed(&self) -> impl Iterator<Item = (TunnelKey, &OwnStatus)> {
        self.served.tunnels().filter_map(|entry| {
            let tunnel = entry.key();
            Some((tunnel, &self.of(tunnel)?.observed))
        })
    }

    /// Returns the tunnel of an object that was applied, and what the status of its served object says about this replica.
    pub fn observed_of(&self, object: &ClusterTunnel) -> Option<(TunnelKey, &OwnStatus)> {
        let tunnel = self.known.get(&key(object))?.entry.key();
        Some((tunnel, &self.of(tunnel)?.observed))
    }

    fn build(&mut self) -> Arc<Directory> {
        self.served = Arc::new(Directory::of(self.known.values().map(|known| known.entry.clone())));
        for duplicate in self.served.duplicates() {
            let TunnelEntry { namespace, name, id, .. } = &**duplicate;
            tracing::warn!(
                namespace,
                name,
                tunnel = %id,
                "another ClusterTunnel, which is older, has the same id or Cluster; this one is not served"
            );
        }
        self.served.clone()
    }

    /// Returns `None` if the object has no valid id, which the schema prevents.
    fn read(&self, object: &ClusterTunnel) -> Option<KnownTunnel> {
        let spec = &object.spec;
        let (namespace, name) = key(object);
        let Ok(id) = spec.id.parse() else {
            tracing::error!(
                namespace,
                name,
                "`spec.id` has not 32 hexadecimal digits; the ClusterTunnel is skipped"
            );
            return None;
        };
        let hubs = spec.hubs.iter().map(|hub| HubAddress {
            address: hub.address.clone(),
            ca_bundle: hub.ca_bundle.clone(),
            token: hub.token.clone(),
        });
        let entry = TunnelEntry {
            id,
            epoch: spec.epoch,
            namespace,
            cluster: spec.cluster_name.clone(),
            name,
            endpoint: spec.endpoint.clone(),
            last_seen: object.status.as_ref().and_then(|status| Some(status.last_seen.as_ref()?.0)),
            hubs: hubs.collect(),
            created: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
        };
        let observed = OwnStatus::observed(object, &self.hub);
        Some(KnownTunnel { entry, reference: object.object_ref(&()), observed })
    }
}

fn key(object: &ClusterTunnel) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use chandler_tunnel::{TunnelId, TunnelOwner};
    use serde_json::json;

    use super::*;

    fn object(name: &str, digit: char, status: &serde_json::Value) -> ClusterTunnel {
        object_in("fleet", name, digit, status)
    }

    fn object_in(namespace: &str, name: &str, digit: char, status: &serde_json::Value) -> ClusterTunnel {
        let id = digit.to_string().repeat(32);
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ClusterTunnel",
            "metadata": {"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"id": id, "epoch": 1, "clusterName": name, "hubs": []},
            "status": status,
        }))
        .unwrap()
    }

    fn id(digit: char) -> TunnelId {
        digit.to_string().repeat(32).parse().unwrap()
    }

    fn key_of(digit: char, cluster: &str) -> TunnelKey {
        TunnelKey { id: id(digit), owner: TunnelOwner::of("fleet", cluster) }
    }

    fn agent(hub: &str, connection: &str) -> serde_json::Value {
        json!({"hub": hub, "connection": connection, "epoch": 1, "since": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn the_directory_is_complete_after_the_list_and_survives_the_next_one() {
        let mut objects = Objects::new("hub-1".to_owned());
        objects.begin_list();
        objects.list(&object("blue", 'a', &json!({})));
        assert!(!objects.served.is_listed());
        assert!(objects.end_list().tunnel(id('a')).is_some());
        objects.begin_list();
        objects.list(&object("red", 'b', &json!({})));
        assert!(
            objects.of(key_of('a', "blue")).is_some(),
            "the old list is used until the new one is complete"
        );
        objects.list_undecodable("fleet", "blue");
        let directory = objects.end_list();
        assert!(
            directory.tunnel(id('a')).is_some(),
            "an object that cannot be decoded any more keeps its agents"
        );
        assert!(directory.tunnel(id('b')).is_some());
        assert!(objects.delete("fleet".to_owned(), "blue".to_owned()).unwrap().tunnel(id('a')).is_none());
    }

    #[test]
    fn a_status_changes_the_directory_only_if_an_agent_was_seen() {
        let mut objects = Objects::new("hub-1".to_owned());
        objects.begin_list();
        objects.list(&object("blue", 'a', &json!({})));
        objects.end_list();
        let connected = json!({"agents": [agent("hub-2", "x"), agent("hub-1", "z"), agent("hub-1", "y")]});
        assert!(objects.apply(&object("blue", 'a', &connected)).is_none());
        let observed = &objects.of(key_of('a', "blue")).unwrap().observed;
        let connections: Vec<_> = observed.agents.iter().map(|agent| agent.connection.as_str()).collect();
        assert_eq!(connections, ["y", "z"], "only those of this replica, sorted");
        let seen = json!({"lastSeen": "2026-01-02T00:00:00Z"});
        let directory = objects.apply(&object("blue", 'a', &seen)).unwrap();
        assert!(directory.tunnel(id('a')).unwrap().last_seen.is_some());
    }

    #[test]
    fn an_object_is_found_for_the_tunnel_of_its_cluster_only() {
        let mut objects = Objects::new("hub-1".to_owned());
        objects.begin_list();
        objects.list(&object("blue", 'a', &json!({})));
        objects.end_list();
        let first = key_of('a', "blue");
        let thief = object_in("thief", "blue", 'a', &json!({}));
        objects.apply(&thief);
        let other = TunnelKey { owner: TunnelOwner::of("thief", "blue"), ..first };
        assert!(objects.of(first).is_some() && objects.of(other).is_none());
        assert!(objects.observed_of(&thief).is_none());
        objects.delete("fleet".to_owned(), "blue".to_owned()).unwrap();
        assert!(objects.of(first).is_none(), "what is known of its agents is not written to another object");
        assert_eq!(objects.of(other).unwrap().entry.namespace, "thief");
        assert_eq!(objects.observed_of(&thief).unwrap().0, other);
    }
}
