//! The connections of the agent.

use std::{collections::BTreeMap, time::Instant};

use chandler_tunnel::HubEndpoint;
use tokio::sync::watch;

/// All connections that are up, by the number of their slot: a slot keeps one connection, and opens another when it is lost.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub connections: BTreeMap<u64, Connection>,
}

/// A connection that is up.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The address of the hub.
    pub hub: String,
    /// The certificate authority of the hub, in PEM.
    pub ca_bundle: String,
    /// The id of the hub's replica. `None` if the hub does not say.
    pub replica: Option<String>,
    pub since: Instant,
}

/// Shows a connection in the status until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    status: watch::Sender<Status>,
    slot: u64,
}

impl Entry {
    pub fn insert(
        status: &watch::Sender<Status>,
        slot: u64,
        hub: &HubEndpoint,
        replica: Option<&str>,
    ) -> Self {
        let connection = Connection {
            hub: hub.address.clone(),
            ca_bundle: hub.ca_bundle.clone(),
            replica: replica.map(str::to_owned),
            since: Instant::now(),
        };
        status.send_modify(|status| drop(status.connections.insert(slot, connection)));
        Self { status: status.clone(), slot }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.status.send_modify(|status| drop(status.connections.remove(&self.slot)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_shown_as_long_as_it_is_up() {
        let (sender, receiver) = watch::channel(Status::default());
        let hub =
            HubEndpoint { address: "hub:443".to_owned(), ca_bundle: "CA".to_owned(), token: "token".into() };
        let first = Entry::insert(&sender, 1, &hub, None);
        let second = Entry::insert(&sender, 2, &hub, Some("a"));
        assert_eq!(receiver.borrow().connections[&1].replica, None);
        assert_eq!(receiver.borrow().connections[&2].replica.as_deref(), Some("a"));
        drop(second);
        assert_eq!(receiver.borrow().connections.keys().collect::<Vec<_>>(), [&1]);
        drop(first);
        assert!(receiver.borrow().connections.is_empty());
    }
}
