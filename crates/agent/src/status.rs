//! The connections of the agent.

use std::{collections::BTreeMap, time::Instant};

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
    pub fn insert(status: &watch::Sender<Status>, slot: u64, hub: &str, replica: Option<&str>) -> Self {
        let connection =
            Connection { hub: hub.to_owned(), replica: replica.map(str::to_owned), since: Instant::now() };
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
        let first = Entry::insert(&sender, 1, "hub:443", None);
        let second = Entry::insert(&sender, 2, "hub:443", Some("a"));
        assert_eq!(receiver.borrow().connections[&1].replica, None);
        assert_eq!(receiver.borrow().connections[&2].replica.as_deref(), Some("a"));
        drop(second);
        assert_eq!(receiver.borrow().connections.keys().collect::<Vec<_>>(), [&1]);
        drop(first);
        assert!(receiver.borrow().connections.is_empty());
    }
}
