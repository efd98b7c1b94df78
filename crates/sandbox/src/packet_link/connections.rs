//! The TCP connections that cross a link, and those of them that it breaks.

use std::collections::HashMap;
use std::net::SocketAddrV4;

use super::segment::{Reset, Segment};

/// What a link does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Carry,
    Discard,
    /// Discard it and send this to its sender.
    Answer(Reset),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Forgotten,
    Reset,
}

/// A connection: the last segment from each end of the link, and its fault.
#[derive(Debug, Default)]
struct Connection {
    last: [Option<Segment>; 2],
    fault: Option<Fault>,
}

/// The TCP connections over IPv4. The keys are both addresses, the smaller one first.
#[derive(Debug, Default)]
pub(super) struct Connections(HashMap<[SocketAddrV4; 2], Connection>);

impl Connections {
    /// Decides about a packet that comes from an end of the link.
    pub(super) fn receive(&mut self, end: usize, packet: &[u8]) -> Action {
        let Some(segment) = Segment::parse(packet) else { return Action::Carry };
        let key = [segment.from.min(segment.to), segment.from.max(segment.to)];
        let connection = self.0.entry(key).or_default();
        if segment.opens_connection() {
            // The ports of an old connection may be used again.
            *connection = Connection::default();
        }
        connection.last[end] = Some(segment);
        match connection.fault {
            None => Action::Carry,
            Some(Fault::Forgotten) => Action::Discard,
            Some(Fault::Reset) => segment.reset().map_or(Action::Discard, Action::Answer),
        }
    }

    /// Discards the packets of the present connections from now on.
    pub(super) fn forget(&mut self) {
        for connection in self.0.values_mut() {
            connection.fault = Some(Fault::Forgotten);
        }
    }

    /// Resets the present connections. Returns the packets that do so, each with the end that it is for.
    ///
    /// An end with packets on their way to it ignores its reset, and gets another one as soon as it sends something.
    pub(super) fn reset(&mut self) -> Vec<(usize, Reset)> {
        let mut resets = Vec::new();
        for connection in self.0.values_mut().filter(|connection| connection.fault.is_none()) {
            connection.fault = Some(Fault::Reset);
            for (end, last) in connection.last.iter().enumerate() {
                resets.extend(last.and_then(|segment| segment.reset()).map(|reset| (end, reset)));
            }
        }
        resets
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::segment::tests::{DATA, OPEN, packet},
        *,
    };

    const OLD: (u16, u16) = (5000, 8443);
    const NEW: (u16, u16) = (5001, 8443);

    fn with_connection() -> Connections {
        let mut connections = Connections::default();
        for (end, is_back, flags) in [(0, false, OPEN), (1, true, OPEN | DATA), (0, false, DATA)] {
            assert_eq!(connections.receive(end, &packet(OLD, is_back, flags)), Action::Carry);
        }
        connections
    }

    #[test]
    fn forgotten_connections_are_silent_and_new_ones_work() {
        let mut connections = with_connection();
        connections.forget();
        for (end, is_back) in [(0, false), (1, true)] {
            assert_eq!(connections.receive(end, &packet(OLD, is_back, DATA)), Action::Discard);
        }
        assert_eq!(connections.receive(0, &packet(NEW, false, OPEN)), Action::Carry);
        assert_eq!(
            connections.receive(0, &packet(OLD, false, OPEN)),
            Action::Carry,
            "the port is used again"
        );
        assert_eq!(connections.receive(0, &packet(OLD, false, DATA)), Action::Carry);
    }

    #[test]
    fn both_ends_of_a_connection_are_reset_once_and_whenever_they_send() {
        let mut connections = with_connection();
        let resets = connections.reset();
        assert_eq!(resets.iter().map(|(end, _)| *end).collect::<Vec<_>>(), [0, 1]);
        let answer = connections.receive(0, &packet(OLD, false, DATA));
        assert_eq!(answer, Action::Answer(resets[0].1));
        assert!(connections.reset().is_empty());
        assert_eq!(connections.receive(0, &packet(NEW, false, OPEN)), Action::Carry);
    }

    #[test]
    fn packets_of_other_protocols_are_carried() {
        let mut connections = Connections::default();
        assert_eq!(connections.receive(0, &[0x60; 40]), Action::Carry);
        assert!(connections.reset().is_empty());
    }
}
