use std::net::{IpAddr, Ipv4Addr};

use super::*;

const LIMITS: HandshakeLimits =
    HandshakeLimits { total: 16, per_source: 4, waiting: 100, patience: Duration::from_secs(2) };

/// A port, and what has happened to its connections.
struct Port {
    handshakes: Handshakes,
    now: Instant,
    running: Vec<Handshake>,
    dropped: Vec<Handshake>,
}

impl Port {
    fn new(limits: HandshakeLimits) -> Self {
        let handshakes = Handshakes::new(limits);
        Self { handshakes, now: Instant::now(), running: Vec::new(), dropped: Vec::new() }
    }

    /// Lets connections arrive from `192.0.2.<source>`.
    fn arrive(&mut self, source: u8, count: usize) -> Vec<Handshake> {
        let source = Source::from(IpAddr::from(Ipv4Addr::new(192, 0, 2, source)));
        let arrived = (0..count).map(|_| {
            let (handshake, changes) = self.handshakes.arrive(source, self.now);
            self.apply(changes);
            handshake
        });
        arrived.collect()
    }

    fn end(&mut self, handshake: Handshake) {
        self.running.retain(|other| *other != handshake);
        let changes = self.handshakes.end(handshake, self.now);
        self.apply(changes);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let changes = self.handshakes.advance(self.now);
        self.apply(changes);
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Start(handshake) => self.running.push(handshake),
                Change::Drop(handshake) => {
                    self.running.retain(|other| *other != handshake);
                    self.dropped.push(handshake);
                }
            }
        }
        assert_eq!(self.running.len(), self.handshakes.running);
        assert!(self.running.len() <= self.handshakes.limits.total);
    }

    fn is_running(&self, handshakes: &[Handshake]) -> bool {
        handshakes.iter().all(|handshake| self.running.contains(handshake))
    }

    /// Fills all slots with handshakes that do not end: 8 of source 1, and 4 each of sources 2 and 3.
    fn fill(&mut self) -> [Vec<Handshake>; 3] {
        let filled = [self.arrive(1, 8), self.arrive(2, 4), self.arrive(3, 4)];
        assert!(filled.iter().all(|handshakes| self.is_running(handshakes)));
        filled
    }
}

#[test]
fn one_source_gets_half_of_the_slots_and_then_waits_in_order() {
    let mut port = Port::new(LIMITS);
    let of_one = port.arrive(1, 20);
    assert_eq!(port.running, of_one[..8]);
    let of_other = port.arrive(2, 20);
    assert!(port.is_running(&of_other[..4]), "another source has its share");
    assert_eq!(port.running.len(), 12);
    port.end(of_one[0]);
    assert!(!port.is_running(&of_one[8..9]), "above its share, a source takes no more");
    for ended in &of_one[1..5] {
        port.end(*ended);
    }
    assert!(port.is_running(&of_one[5..9]), "{:?}", port.running);
    assert!(port.dropped.is_empty());
}

#[test]
fn a_thousand_agents_behind_one_address_all_get_in() {
    let mut port = Port::new(HandshakeLimits::default());
    let arrived = port.arrive(1, 1000);
    let mut ended = Vec::new();
    while let Some(first) = port.running.first().copied() {
        port.end(first);
        ended.push(first);
    }
    assert_eq!(ended, arrived);
    assert!(port.dropped.is_empty());
    assert!(port.handshakes.sources.is_empty(), "nothing is left behind");
}

#[test]
fn agents_of_many_addresses_that_come_at_once_are_not_dropped() {
    let mut port = Port::new(LIMITS);
    let arrived: Vec<_> = (0..50).flat_map(|source| port.arrive(source, 1)).collect();
    assert_eq!(port.running, arrived[..16]);
    let mut ended = 0;
    while let Some(first) = port.running.first().copied() {
        port.end(first);
        ended += 1;
    }
    assert_eq!((ended, port.dropped.len()), (50, 0));
}

#[test]
fn silent_connections_make_room() {
    let mut port = Port::new(LIMITS);
    let [silent, ..] = port.fill();
    let agents = port.arrive(9, 3);
    assert!(!port.is_running(&agents[..1]), "a handshake may take a moment");
    port.pass(LIMITS.patience);
    assert!(port.is_running(&agents));
    assert_eq!(port.dropped, silent[..3], "the oldest ones of the source with the most");
    let later = port.arrive(9, 1);
    assert!(port.is_running(&later), "at once, because the others are late already");
}

#[test]
fn the_next_slot_is_for_the_source_with_the_fewest_handshakes() {
    let mut port = Port::new(LIMITS);
    let [first, second, _] = port.fill();
    let more = port.arrive(2, 10);
    let agent = port.arrive(9, 1);
    port.end(first[0]);
    assert!(port.is_running(&agent), "although others have waited longer");
    port.end(second[0]);
    assert!(port.is_running(&more[..1]));
}

#[test]
fn a_source_at_its_limit_replaces_its_own_late_handshakes_only() {
    let mut port = Port::new(LIMITS);
    let [_, second, _] = port.fill();
    port.end(port.running[0]);
    port.pass(LIMITS.patience);
    let more = port.arrive(2, 2);
    assert!(port.is_running(&more), "of all slots, one is free for others");
    assert_eq!(port.dropped, second[..2]);
}

#[test]
fn no_source_loses_a_handshake_to_one_with_as_many() {
    let mut port = Port::new(LIMITS);
    let slow: Vec<_> = (0..16).flat_map(|source| port.arrive(source, 1)).collect();
    port.pass(LIMITS.patience);
    let agents = port.arrive(99, 5);
    assert_eq!(port.dropped, slow[..1], "the new source gets one slot");
    assert!(port.is_running(&agents[..1]) && !port.is_running(&agents[1..2]));
    port.pass(LIMITS.patience);
    assert_eq!(port.dropped, [slow[0], agents[0]], "then only its own give way");
}

#[test]
fn many_sources_that_wait_get_in_one_after_another() {
    let mut port = Port::new(LIMITS);
    let [first, second, third] = port.fill();
    let agents: Vec<_> = (10..30).flat_map(|source| port.arrive(source, 1)).collect();
    port.pass(LIMITS.patience);
    assert_eq!(port.running, agents[..16]);
    assert_eq!(port.dropped.len(), 16);
    assert_eq!(
        port.dropped[..5],
        first[..5],
        "those of the source with the most, until it has no more than others"
    );
    assert_eq!(port.dropped[5..7], [second[0], third[0]]);
}

#[test]
fn a_connection_that_was_dropped_makes_no_room_when_it_ends() {
    let mut port = Port::new(LIMITS);
    let gone = port.arrive(9, 1);
    port.end(gone[0]);
    port.fill();
    let agents = port.arrive(9, 1);
    port.now += LIMITS.patience;
    assert_eq!(port.handshakes.end(gone[0], port.now), []);
    port.pass(Duration::ZERO);
    assert!(port.is_running(&agents));
}

#[test]
fn too_many_waiting_connections_are_refused_to_the_source_with_the_most() {
    let mut port = Port::new(HandshakeLimits { waiting: 10, ..LIMITS });
    port.fill();
    let flood = port.arrive(1, 12);
    assert_eq!(port.dropped, flood[10..]);
    let agents = port.arrive(9, 2);
    assert_eq!(port.dropped[2..], [flood[9], flood[8]], "others wait in their place");
    port.end(agents[0]);
    assert_eq!(port.handshakes.waiting, 9, "a connection may end while it waits");
}
