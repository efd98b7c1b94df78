//! Decides which connections to the hooks are kept, so that a client that opens many cannot keep Cluster API out.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

/// Connections that may be open at the same time.
pub const MAX_CONNECTIONS: usize = 128;

const WAITING: u8 = 0;
const HANDLED: u8 = 1;
const CLOSED: u8 = 2;

/// How far the request of a connection is. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU8>);

impl Progress {
    /// Takes in that the request is complete and is handled now. From then on, the connection is never closed for another one.
    pub fn begin_handling(&self) {
        self.change(HANDLED);
    }

    /// Closes a connection whose request is not complete. Returns `false` if the request is handled.
    pub fn close(&self) -> bool {
        self.change(CLOSED)
    }

    fn change(&self, to: u8) -> bool {
        self.0.compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Acquire) == WAITING
    }
}

/// An open connection. They are listed from the oldest to the newest.
#[derive(Clone, Debug)]
pub struct OpenConnection {
    pub id: u64,
    pub client: IpAddr,
    pub progress: Progress,
}

/// How a new connection gets a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Free,
    /// This connection makes room.
    Replace(u64),
    /// All requests are being handled, which takes a moment.
    Wait,
}

/// Decides how a new connection gets a place. If there are too many, the oldest of the client with the most makes room, among
/// those whose request is not complete: Cluster API sends its requests at once, so most of these are idle.
pub fn place<'a>(open: impl Iterator<Item = &'a OpenConnection>) -> Place {
    let (mut total, mut waiting) = (0, Vec::new());
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for connection in open {
        total += 1;
        if connection.progress.is_waiting() {
            *counts.entry(connection.client).or_default() += 1;
            waiting.push(connection);
        }
    }
    if total < MAX_CONNECTIONS {
        return Place::Free;
    }
    let most = counts.values().max();
    let oldest = waiting.iter().find(|connection| counts.get(&connection.client) == most);
    oldest.map_or(Place::Wait, |connection| Place::Replace(connection.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number / 256).try_into().unwrap(), (number % 256).try_into().unwrap()])
    }

    /// Lists connections of clients, as (client, number of connections, whether they are handled), in this order.
    fn open(clients: &[(usize, usize, bool)]) -> Vec<OpenConnection> {
        let clients = clients
            .iter()
            .flat_map(|(client, count, is_handled)| std::iter::repeat_n((client, is_handled), *count));
        let connection = |(id, (client, is_handled)): (u64, (&usize, &bool))| {
            let progress = Progress::default();
            if *is_handled {
                progress.begin_handling();
            }
            OpenConnection { id, client: address(*client), progress }
        };
        (0..).zip(clients).map(connection).collect()
    }

    #[test]
    fn the_client_with_the_most_idle_connections_makes_room() {
        type Row<'a> = (&'a str, &'a [(usize, usize, bool)], Place);
        let one_each: Vec<_> = (0..MAX_CONNECTIONS).map(|client| (client, 1, false)).collect();
        let rows: [Row<'_>; 8] = [
            ("nothing is open", &[], Place::Free),
            ("there is room", &[(1, 127, false)], Place::Free),
            ("one client has all", &[(1, 128, false)], Place::Replace(0)),
            (
                "the client with the most makes room",
                &[(2, 40, false), (1, 60, false), (3, 28, false)],
                Place::Replace(40),
            ),
            ("of equal clients, the oldest connection ends", &one_each, Place::Replace(0)),
            ("a request that is handled is not cut", &[(1, 100, true), (2, 28, false)], Place::Replace(100)),
            ("also if it is the oldest of many", &[(1, 1, true), (1, 127, false)], Place::Replace(1)),
            ("all are handled", &[(1, 100, true), (2, 28, true)], Place::Wait),
        ];
        for (name, clients, expected) in rows {
            assert_eq!(place(open(clients).iter()), expected, "{name}");
        }
    }

    #[test]
    fn a_connection_is_either_closed_or_handled() {
        let handled = Progress::default();
        handled.begin_handling();
        assert!(!handled.close());
        let closed = Progress::default();
        assert!(closed.close() && !closed.close());
    }
}
