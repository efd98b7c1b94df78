//! Cuts connections and streams of tunnels that were revoked or removed.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use chandler_tunnel::TunnelKey;
use tokio_util::sync::CancellationToken;

use crate::{
    directory::{Directory, DirectoryReceiver},
    locks::Mutex,
};

/// One token per tunnel, which is canceled when its epoch changes, it is removed, or its id belongs to another Cluster.
#[derive(Clone)]
pub struct Revocations {
    directory: DirectoryReceiver,
    tokens: Arc<Mutex<HashMap<TunnelKey, Issued>>>,
}

struct Issued {
    epoch: u32,
    token: CancellationToken,
}

impl Issued {
    fn new(epoch: u32) -> Self {
        Self { epoch, token: CancellationToken::new() }
    }
}

impl Revocations {
    pub fn new(directory: DirectoryReceiver) -> Self {
        Self { directory, tokens: Arc::default() }
    }

    /// Returns a token that is canceled as soon as the tunnel is revoked or removed. Returns `None` if it already is, or if
    /// the tunnels are not listed yet.
    pub fn token(&self, tunnel: TunnelKey, epoch: u32) -> Option<CancellationToken> {
        // The directory is read under the lock: a change after this point is applied after it, and cancels the token.
        let mut tokens = self.tokens.lock();
        self.directory.borrow().valid(tunnel, epoch)?;
        let issued = match tokens.entry(tunnel) {
            Entry::Occupied(entry) if entry.get().epoch == epoch => entry.get().token.child_token(),
            Entry::Occupied(mut entry) => {
                entry.insert(Issued::new(epoch)).token.cancel();
                entry.get().token.child_token()
            }
            Entry::Vacant(entry) => entry.insert(Issued::new(epoch)).token.child_token(),
        };
        Some(issued)
    }

    /// Cancels the tokens that a directory revokes.
    fn apply(&self, directory: &Directory) {
        self.tokens.lock().retain(|tunnel, issued| {
            let revoked = directory.revokes(*tunnel, issued.epoch);
            if revoked {
                tracing::info!(tunnel = %tunnel.id, epoch = issued.epoch, "the tunnel was revoked or removed; its connections are cut");
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
    use chandler_tunnel::TunnelId;
    use tokio::sync::watch;

    use super::*;
    use crate::directory::TunnelEntry;

    fn id(digit: char) -> TunnelId {
        digit.to_string().repeat(32).parse().unwrap()
    }

    fn entry(digit: char, epoch: u32) -> TunnelEntry {
        TunnelEntry {
            id: id(digit),
            epoch,
            namespace: "fleet".to_owned(),
            cluster: digit.to_string(),
            name: digit.to_string(),
            endpoint: None,
            last_seen: None,
            hubs: Vec::new(),
            created: None,
        }
    }

    fn key(digit: char) -> TunnelKey {
        entry(digit, 1).key()
    }

    fn directory(tunnels: &[(char, u32)]) -> Arc<Directory> {
        Arc::new(Directory::of(tunnels.iter().map(|&(digit, epoch)| entry(digit, epoch))))
    }

    #[tokio::test]
    async fn a_changed_epoch_or_a_removed_tunnel_cancels() {
        let (sender, receiver) = watch::channel(directory(&[('a', 1), ('b', 1), ('c', 1)]));
        let revocations = Revocations::new(receiver);
        let tokens: Vec<_> = ['a', 'b', 'c'].map(|tunnel| revocations.token(key(tunnel), 1).unwrap()).into();
        let running = tokio::spawn(revocations.clone().run());
        sender.send(Arc::new(Directory::unlisted())).unwrap();
        sender.send(directory(&[('a', 1), ('b', 2)])).unwrap();
        tokens[1].cancelled().await;
        tokens[2].cancelled().await;
        assert!(!tokens[0].is_cancelled(), "an unchanged tunnel keeps its connections");
        assert!(revocations.token(key('b'), 1).is_none(), "the old epoch gets no token");
        assert!(revocations.token(key('b'), 2).is_some());
        drop((sender, revocations));
        running.await.unwrap();
    }

    #[test]
    fn an_id_that_belongs_to_another_cluster_cancels() {
        let (sender, receiver) = watch::channel(directory(&[('a', 1)]));
        let revocations = Revocations::new(receiver);
        let token = revocations.token(key('a'), 1).unwrap();
        let other = TunnelEntry { namespace: "other".to_owned(), ..entry('a', 1) };
        assert!(revocations.token(other.key(), 1).is_none(), "the id belongs to the first");
        let changed = Arc::new(Directory::of([other.clone()]));
        sender.send(changed.clone()).unwrap();
        revocations.apply(&changed);
        assert!(token.is_cancelled());
        assert!(revocations.token(key('a'), 1).is_none(), "agents of the first are not those of the other");
        assert!(!revocations.token(other.key(), 1).unwrap().is_cancelled());
    }

    #[test]
    fn nothing_is_concluded_before_the_list() {
        let (sender, receiver) = watch::channel(directory(&[('a', 1)]));
        let revocations = Revocations::new(receiver);
        let token = revocations.token(key('a'), 1).unwrap();
        revocations.apply(&Directory::unlisted());
        assert!(!token.is_cancelled());
        sender.send(Arc::new(Directory::unlisted())).unwrap();
        assert!(revocations.token(key('a'), 1).is_none());
    }
}
