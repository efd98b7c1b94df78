//! The tunnels that the hub knows: a snapshot of all ClusterTunnels, with lookups. Pure.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::Arc,
};

use chandler_tunnel::{TunnelId, TunnelKey, TunnelOwner};
use jiff::Timestamp;
use tokio::sync::watch;

/// The current directory, which changes with the ClusterTunnels.
pub type DirectoryReceiver = watch::Receiver<Arc<Directory>>;

/// One ClusterTunnel, as the hub needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelEntry {
    pub id: TunnelId,
    /// The only epoch whose certificates, join tokens and passwords are valid.
    pub epoch: u32,
    pub namespace: String,
    /// The name of the Cluster.
    pub cluster: String,
    /// The name of the ClusterTunnel.
    pub name: String,
    /// The control plane endpoint of the Cluster as `host:port`. `None` until the Cluster has one.
    pub endpoint: Option<String>,
    /// When an agent was connected for the last time, as far as the status says.
    pub last_seen: Option<Timestamp>,
    /// The hubs that the agents of this tunnel connect to.
    pub hubs: Vec<HubAddress>,
    /// Decides between two ClusterTunnels with the same id or Cluster: the older one wins.
    pub created: Option<Timestamp>,
}

/// A hub, as agents reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct HubAddress {
    /// `host:port`.
    pub address: String,
    /// The certificates that agents trust, in PEM.
    pub ca_bundle: String,
    /// A join token of another installation. `None` for hubs of this installation.
    pub token: Option<String>,
}

impl fmt::Debug for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubAddress").field("address", &self.address).finish_non_exhaustive()
    }
}

impl TunnelEntry {
    /// Returns the id together with the Cluster that agents must have joined for.
    pub fn key(&self) -> TunnelKey {
        TunnelKey { id: self.id, owner: TunnelOwner::of(&self.namespace, &self.cluster) }
    }

    /// Orders by age, and by name if the age is equal. An object without a creation time counts as the newest.
    fn precedence(&self) -> (bool, Option<Timestamp>, &str, &str) {
        (self.created.is_none(), self.created, &self.namespace, &self.name)
    }
}

/// A snapshot of all tunnels.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Whether the ClusterTunnels are listed. If not, the absence of a tunnel means nothing.
    listed: bool,
    by_id: HashMap<TunnelId, Arc<TunnelEntry>>,
    by_cluster: HashMap<String, HashMap<String, Arc<TunnelEntry>>>,
    /// The entries that are not served, because an older one has their id or their Cluster.
    duplicates: Vec<Arc<TunnelEntry>>,
}

impl Directory {
    /// Returns a directory that knows nothing yet.
    pub fn unlisted() -> Self {
        Self::default()
    }

    /// Returns the directory of a complete list. Of several entries with the same id, or for the same Cluster, the oldest
    /// is served: otherwise a user who may create ClusterTunnels in one namespace could take over the tunnel of another.
    pub fn of(entries: impl IntoIterator<Item = TunnelEntry>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().map(Arc::new).collect();
        entries.sort_by(|one, other| one.precedence().cmp(&other.precedence()));
        let mut directory = Self { listed: true, ..Self::default() };
        for entry in entries {
            directory.insert(entry);
        }
        directory
    }

    fn insert(&mut self, entry: Arc<TunnelEntry>) {
        let clusters = self.by_cluster.entry(entry.namespace.clone()).or_default();
        match (self.by_id.entry(entry.id), clusters.entry(entry.cluster.clone())) {
            (Entry::Vacant(id), Entry::Vacant(cluster)) => {
                id.insert(entry.clone());
                cluster.insert(entry);
            }
            _ => self.duplicates.push(entry),
        }
    }

    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Returns the tunnel with this id.
    pub fn tunnel(&self, id: TunnelId) -> Option<&Arc<TunnelEntry>> {
        self.by_id.get(&id)
    }

    /// Returns the tunnel of a Cluster.
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Option<&Arc<TunnelEntry>> {
        self.by_cluster.get(namespace)?.get(cluster)
    }

    /// Returns the tunnel with this id if it belongs to this Cluster. Otherwise a user who creates a ClusterTunnel with the id of
    /// a deleted one in another namespace would take over its agents.
    pub fn owned(&self, tunnel: TunnelKey) -> Option<&Arc<TunnelEntry>> {
        self.tunnel(tunnel.id).filter(|entry| entry.key() == tunnel)
    }

    /// Returns the tunnel with this id if it belongs to this Cluster and `epoch` is its epoch.
    pub fn valid(&self, tunnel: TunnelKey, epoch: u32) -> Option<&Arc<TunnelEntry>> {
        self.owned(tunnel).filter(|entry| entry.epoch == epoch)
    }

    /// Returns whether the directory says that this tunnel and epoch are not valid. A directory that is not listed never does.
    pub fn revokes(&self, tunnel: TunnelKey, epoch: u32) -> bool {
        self.listed && self.valid(tunnel, epoch).is_none()
    }

    /// Returns the served tunnels, in no particular order.
    pub fn tunnels(&self) -> impl Iterator<Item = &Arc<TunnelEntry>> {
        self.by_id.values()
    }

    /// Returns the entries that are not served, because an older one has their id or their Cluster.
    pub fn duplicates(&self) -> &[Arc<TunnelEntry>] {
        &self.duplicates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> TunnelId {
        digit.to_string().repeat(32).parse().unwrap()
    }

    fn entry(digit: char, namespace: &str, cluster: &str, created: i64) -> TunnelEntry {
        TunnelEntry {
            id: id(digit),
            epoch: 2,
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
            name: cluster.to_owned(),
            endpoint: Some("10.0.0.10:6443".to_owned()),
            last_seen: None,
            hubs: Vec::new(),
            created: Some(Timestamp::from_second(created).unwrap()),
        }
    }

    #[test]
    fn finds_tunnels_by_id_and_by_cluster() {
        let directory = Directory::of([entry('a', "fleet", "blue", 1), entry('b', "fleet", "red", 2)]);
        assert_eq!(directory.tunnel(id('b')).unwrap().cluster, "red");
        assert_eq!(directory.of_cluster("fleet", "blue").unwrap().id, id('a'));
        assert!(directory.of_cluster("other", "blue").is_none());
        assert!(directory.tunnel(id('c')).is_none());
    }

    #[test]
    fn only_a_complete_list_revokes() {
        let key = |digit, namespace, cluster| entry(digit, namespace, cluster, 1).key();
        let rows = [
            ("same epoch", key('a', "fleet", "blue"), 2, false),
            ("older epoch", key('a', "fleet", "blue"), 1, true),
            ("newer epoch", key('a', "fleet", "blue"), 3, true),
            ("unknown tunnel", key('b', "fleet", "blue"), 2, true),
            ("another namespace", key('a', "other", "blue"), 2, true),
            ("another Cluster", key('a', "fleet", "red"), 2, true),
        ];
        let listed = Directory::of([entry('a', "fleet", "blue", 1)]);
        for (case, tunnel, epoch, revoked) in rows {
            assert_eq!(listed.revokes(tunnel, epoch), revoked, "{case}");
            assert!(!Directory::unlisted().revokes(tunnel, epoch), "{case}, before the list");
        }
    }

    #[test]
    fn a_duplicate_never_inherits_the_agents_of_the_first() {
        let (first, thief) = (entry('a', "fleet", "blue", 1), entry('a', "thief", "blue", 5));
        let both = Directory::of([first.clone(), thief.clone()]);
        assert!(both.valid(first.key(), 2).is_some() && both.valid(thief.key(), 2).is_none());
        let deleted = Directory::of([thief.clone()]);
        assert_eq!(deleted.tunnel(id('a')).unwrap().namespace, "thief", "the id is free again");
        assert!(deleted.revokes(first.key(), 2), "and useless to the agents of the first");
        assert!(deleted.valid(thief.key(), 2).is_some());
        let renamed = Directory::of([TunnelEntry { name: "other".to_owned(), ..first.clone() }]);
        assert!(renamed.valid(first.key(), 2).is_some(), "the Cluster counts, not the name of the object");
    }

    #[test]
    fn the_oldest_of_duplicates_is_served() {
        let rows = [
            ("the same id in another namespace", entry('a', "thief", "blue", 5)),
            ("the same Cluster", TunnelEntry { name: "second".to_owned(), ..entry('b', "fleet", "blue", 5) }),
            ("no creation time", TunnelEntry { created: None, ..entry('a', "early", "blue", 0) }),
        ];
        for (case, newer) in rows {
            let directory = Directory::of([newer.clone(), entry('a', "fleet", "blue", 1)]);
            assert_eq!(directory.tunnel(id('a')).unwrap().namespace, "fleet", "{case}");
            assert_eq!(directory.of_cluster("fleet", "blue").unwrap().id, id('a'), "{case}");
            assert_eq!(directory.duplicates().len(), 1, "{case}");
            assert!(
                directory.of_cluster(&newer.namespace, &newer.cluster).is_none_or(|served| **served != newer)
            );
        }
    }
}
