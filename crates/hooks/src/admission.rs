//! Decides which connections to the hooks are kept, so that a client that opens many cannot keep Cluster API out.

use std::{collections::HashMap, net::IpAddr};

/// Connections that may be open at the same time.
pub const MAX_CONNECTIONS: usize = 128;
/// Those of one client, by its address. Cluster API has at most as many as controllers that call hooks at the same time.
pub const MAX_PER_CLIENT: usize = 64;

/// An open connection. They are listed from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenConnection {
    pub id: u64,
    pub client: IpAddr,
}

/// Returns the connection that makes room for a new one of `client`: its own oldest if it has as many as it may, or the
/// oldest of the client with the most. `None` means that there is room.
///
/// A connection serves one request within a moment, so the oldest of many is most likely idle.
pub fn replaced(open: &[OpenConnection], client: IpAddr) -> Option<u64> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for connection in open {
        *counts.entry(connection.client).or_default() += 1;
    }
    let oldest_of =
        |client: IpAddr| open.iter().find(|connection| connection.client == client).map(|one| one.id);
    if counts.get(&client).is_some_and(|own| *own >= MAX_PER_CLIENT) {
        return oldest_of(client);
    }
    if open.len() < MAX_CONNECTIONS {
        return None;
    }
    let most = counts.values().max()?;
    open.iter().find(|connection| counts.get(&connection.client) == Some(most)).map(|one| one.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number / 256).try_into().unwrap(), (number % 256).try_into().unwrap()])
    }

    /// Lists connections of clients, as (client, number of connections), in this order.
    fn open(clients: &[(usize, usize)]) -> Vec<OpenConnection> {
        let clients =
            clients.iter().flat_map(|(client, count)| std::iter::repeat_n(address(*client), *count));
        (0..).zip(clients).map(|(id, client)| OpenConnection { id, client }).collect()
    }

    #[test]
    fn the_client_with_the_most_connections_makes_room() {
        let one_each: Vec<_> = (0..MAX_CONNECTIONS).map(|client| (client, 1)).collect();
        let rows: [(&str, &[(usize, usize)], usize, Option<u64>); 6] = [
            ("nothing is open", &[], 1, None),
            ("there is room", &[(1, 63), (2, 63)], 1, None),
            ("a client at its limit replaces its own oldest", &[(2, 3), (1, 64)], 1, Some(3)),
            ("another one is not affected", &[(1, 64)], 2, None),
            ("without room, the client with the most makes it", &[(2, 40), (1, 60), (3, 28)], 2, Some(40)),
            ("of equal clients, the oldest connection ends", &one_each, 500, Some(0)),
        ];
        for (name, clients, client, expected) in rows {
            assert_eq!(replaced(&open(clients), address(client)), expected, "{name}");
        }
    }
}
