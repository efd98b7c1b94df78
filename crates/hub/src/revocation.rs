//! Cuts connections and streams of tunnels that were revoked or removed.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use chandler_tunnel::TunnelId;
use tokio_util::sync::CancellationToken;

use crate::{
    directory::{Directory, DirectoryReceiver, TunnelEntry},
    locks::Mutex,
};

/// One token per tunnel, which is canceled when its epoch changes, it is removed, or its id belongs to another Cluster.
#[derive(Clone)]
pub struct Revocations {
    directory: DirectoryReceiver,
    tokens: Arc<Mutex<HashMap<TunnelId, Issued>>>,
}

struct Issued {
    epoch: u32,
    /// Namespace and name of the Cluster.
    cluster: (String, String),
    token: CancellationToken,
}

impl Issued {
    fn new(entry: &TunnelEntry) -> Self {
        let cluster = (entry.namespace.clone(), entry.cluster.clone());
        Self { epoch: entry.epoch, cluster, token: CancellationToken::new() }
    }

    /// Returns whether the token is for this epoch of this Cluster's tunnel.
    fn is_for(&self, entry: &TunnelEntry) -> bool {
        let (namespace, cluster) = &self.cluster;
        self.epoch == entry.epoch && *namespace == entry.namespace && *cluster == entry.cluster
    }
}

impl Revocations {
    pub fn new(directory: DirectoryReceiver) -> Self {
        Self { directory, tokens: Arc::default() }
    }

    /// Returns a token that is canceled as soon as the tunnel is revoked or removed. Returns `None` if it already is, or if
    /// the tunnels are not listed yet.
    pub fn token(&self, id: TunnelId, epoch: u32) -> Option<CancellationToken> {
        // The directory is read under the lock: a change after this point is applied after it, and cancels the token.
        let mut tokens = self.tokens.lock();
        let tunnel = self.directory.borrow().valid(id, epoch)?.clone();
        let issued = match tokens.entry(id) {
            Entry::Occupied(entry) if entry.get().is_for(&tunnel) => {
                return Some(entry.get().token.child_token());
            }
            Entry::Occupied(mut entry) => {
                entry.insert(Issued::new(&tunnel)).token.cancel();
                entry.get().token.child_token()
            }
            Entry::Vacant(entry) => entry.insert(Issued::new(&tunnel)).token.child_token(),
        };
        Some(issued)
    }

    /// Cancels the tokens that a directory revokes.
    fn apply(&self, directory: &Directory) {
        self.tokens.lock().retain(|id, issued| {
            let is_valid = directory.valid(*id, issued.epoch).is_some_and(|tunnel| issued.is_for(tunnel));
            let revoked = directory.is_listed() && !is_valid;
            if revoked {
                tracing::info!(tunnel = %id, epoch = issued.epoch, "the tunnel was revoked or removed; its connections are cut");
                issued.token.cancel();
            }
            !revoked
        });
    }

    /// Applies every change of the directory, until its sender is dropped.
    pub async fn run(self) {
        let mut changes = self.directory.clone();
        loop {
            let directory = changes.borrow_and_update().clone();
            self.apply(&directory);
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    fn id(digit: char) -> TunnelId {
        digit.to_string().repeat(32).parse().unwrap()
    }

    fn directory(tunnels: &[(char, u32)]) -> Arc<Directory> {
        let entry = |&(digit, epoch): &(char, u32)| TunnelEntry {
            id: id(digit),
            epoch,
            namespace: "fleet".to_owned(),
            cluster: digit.to_string(),
            name: digit.to_string(),
            endpoint: None,
            last_seen: None,
            hubs: Vec::new(),
            created: None,
        };
        Arc::new(Directory::of(tunnels.iter().map(entry)))
    }

    #[tokio::test]
    async fn a_changed_epoch_or_a_removed_tunnel_cancels() {
        let (sender, receiver) = watch::channel(directory(&[('a', 1), ('b', 1), ('c', 1)]));
        let revocations = Revocations::new(receiver);
        let tokens: Vec<_> = ['a', 'b', 'c'].map(|tunnel| revocations.token(id(tunnel), 1).unwrap()).into();
        let running = tokio::spawn(revocations.clone().run());
        sender.send(Arc::new(Directory::unlisted())).unwrap();
        sender.send(directory(&[('a', 1), ('b', 2)])).unwrap();
        tokens[1].cancelled().await;
        tokens[2].cancelled().await;
        assert!(!tokens[0].is_cancelled(), "an unchanged tunnel keeps its connections");
        assert!(revocations.token(id('b'), 1).is_none(), "the old epoch gets no token");
        assert!(revocations.token(id('b'), 2).is_some());
        drop((sender, revocations));
        running.await.unwrap();
    }

    #[test]
    fn an_id_that_belongs_to_another_cluster_cancels() {
        let (sender, receiver) = watch::channel(directory(&[('a', 1)]));
        let revocations = Revocations::new(receiver);
        let token = revocations.token(id('a'), 1).unwrap();
        let mut other = (**directory(&[('a', 1)]).tunnel(id('a')).unwrap()).clone();
        other.namespace = "other".to_owned();
        let other = Arc::new(Directory::of([other]));
        sender.send(other.clone()).unwrap();
        revocations.apply(&other);
        assert!(token.is_cancelled());
        assert!(!revocations.token(id('a'), 1).unwrap().is_cancelled());
    }

    #[test]
    fn nothing_is_concluded_before_the_list() {
        let (sender, receiver) = watch::channel(directory(&[('a', 1)]));
        let revocations = Revocations::new(receiver);
        let token = revocations.token(id('a'), 1).unwrap();
        revocations.apply(&Directory::unlisted());
        assert!(!token.is_cancelled());
        sender.send(Arc::new(Directory::unlisted())).unwrap();
        assert!(revocations.token(id('a'), 1).is_none());
    }
}
