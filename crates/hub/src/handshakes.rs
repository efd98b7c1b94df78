//! Decides which connections may do their handshake. Pure: the caller passes the time.
//!
//! The hub does not know a client before the end of its handshake, and a client that sends nothing ends none. So that no
//! source address can keep the others out:
//! - A source at its limit waits for its own handshakes, not for those of others.
//! - The next free slot is for the source with the fewest handshakes.
//! - Without a free slot, the oldest handshake of the source with the most is dropped, once it has taken longer than a client
//!   that answers needs. Younger ones are left alone: when a hub is restarted, all agents come at once.

mod source;

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

pub use self::source::Source;

/// How many connections of a port may do their handshake at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeLimits {
    pub total: usize,
    /// Handshakes of one source. It may have more while less than half of all slots are used, because many agents can be behind
    /// one address.
    pub per_source: usize,
    /// Connections that wait for a slot.
    pub waiting: usize,
    /// After this time, a handshake may be dropped to make room.
    pub patience: Duration,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self { total: 256, per_source: 32, waiting: 1024, patience: Duration::from_secs(2) }
    }
}

/// A connection that waits for its handshake, or has not ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handshake {
    source: Source,
    serial: u64,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its handshake starts.
    Start(Handshake),
    /// It is closed.
    Drop(Handshake),
}

/// The connections of a port whose handshakes have not ended.
#[derive(Debug)]
pub struct Handshakes {
    limits: HandshakeLimits,
    next_serial: u64,
    sources: HashMap<Source, Connections>,
    /// The sum over all sources.
    running: usize,
    /// The sum over all sources.
    waiting: usize,
}

/// The connections of one source, the oldest first.
#[derive(Debug, Default)]
struct Connections {
    running: VecDeque<(Handshake, Instant)>,
    waiting: VecDeque<Handshake>,
}

impl Handshakes {
    pub fn new(limits: HandshakeLimits) -> Self {
        Self { limits, next_serial: 0, sources: HashMap::new(), running: 0, waiting: 0 }
    }

    /// Adds a connection.
    pub fn arrive(&mut self, source: Source, now: Instant) -> (Handshake, Vec<Change>) {
        let handshake = Handshake { source, serial: self.next_serial };
        self.next_serial += 1;
        self.sources.entry(source).or_default().waiting.push_back(handshake);
        self.waiting += 1;
        let mut changes = self.advance(now);
        if self.waiting > self.limits.waiting
            && let Some(refused) = self.last_waiting()
        {
            self.remove(refused);
            changes.push(Change::Drop(refused));
        }
        (handshake, changes)
    }

    /// Removes a connection whose handshake has ended, or which is closed.
    pub fn end(&mut self, handshake: Handshake, now: Instant) -> Vec<Change> {
        // A dropped one was removed before.
        if self.remove(handshake) { self.advance(now) } else { Vec::new() }
    }

    /// Returns whether [`Handshakes::advance`] may change something later.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Starts what may start at this time.
    pub fn advance(&mut self, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some((next, dropped)) = self.next(now) {
            if let Some(dropped) = dropped {
                self.remove(dropped);
                changes.push(Change::Drop(dropped));
            }
            self.start(next, now);
            changes.push(Change::Start(next));
        }
        changes
    }

    /// Returns the next handshake to start, and the one that is dropped for it.
    fn next(&self, now: Instant) -> Option<(Handshake, Option<Handshake>)> {
        if self.waiting == 0 {
            return None;
        }
        let first = |connections: &Connections| {
            let first = *connections.waiting.front()?;
            Some((connections.running.len(), first))
        };
        let mut candidates: Vec<_> = self.sources.values().filter_map(first).collect();
        candidates.sort_unstable_by_key(|(running, first)| (*running, first.serial));
        // The same for all candidates.
        let late = if self.running >= self.limits.total { self.late_of_most(now) } else { None };
        candidates.into_iter().find_map(|(running, first)| {
            if self.has_room(running) {
                return Some((first, None));
            }
            let of_other = late.filter(|(count, _)| *count > running).map(|(_, dropped)| dropped);
            let dropped = of_other.or_else(|| self.late_of(first.source, now))?;
            Some((first, Some(dropped)))
        })
    }

    /// Returns whether a source with this number of handshakes may start another one.
    fn has_room(&self, running: usize) -> bool {
        let HandshakeLimits { total, per_source, .. } = self.limits;
        self.running < total && (running < per_source || self.running < total / 2)
    }

    /// Returns the handshake that makes room if all slots are used, for a source with fewer handshakes, and how many its own
    /// source has: the oldest of the source with the most, of those that are late.
    fn late_of_most(&self, now: Instant) -> Option<(usize, Handshake)> {
        let late = self.sources.values().filter_map(|connections| {
            let (oldest, since) = self.late(connections, now)?;
            Some((connections.running.len(), since, oldest))
        });
        let key = |(count, since, oldest): &(usize, Instant, Handshake)| {
            (*count, Reverse(*since), Reverse(oldest.serial))
        };
        late.max_by_key(key).map(|(count, _, oldest)| (count, oldest))
    }

    /// Returns the handshake that makes room for another one of the same source.
    fn late_of(&self, source: Source, now: Instant) -> Option<Handshake> {
        self.late(self.sources.get(&source)?, now).map(|(oldest, _)| oldest)
    }

    /// Returns the oldest handshake of a source if it has taken long.
    fn late(&self, connections: &Connections, now: Instant) -> Option<(Handshake, Instant)> {
        let (oldest, since) = *connections.running.front()?;
        let is_late = now.saturating_duration_since(since) >= self.limits.patience;
        is_late.then_some((oldest, since))
    }

    /// Returns the last connection of the source of which most connections wait.
    fn last_waiting(&self) -> Option<Handshake> {
        let last = self.sources.values().filter_map(|connections| {
            let last = *connections.waiting.back()?;
            Some((connections.waiting.len(), last))
        });
        last.max_by_key(|(count, last)| (*count, last.serial)).map(|(_, last)| last)
    }

    fn start(&mut self, handshake: Handshake, now: Instant) {
        self.remove(handshake);
        self.sources.entry(handshake.source).or_default().running.push_back((handshake, now));
        self.running += 1;
    }

    /// Returns whether the connection was there.
    fn remove(&mut self, handshake: Handshake) -> bool {
        let Some(connections) = self.sources.get_mut(&handshake.source) else { return false };
        let Connections { running, waiting } = connections;
        let (had_running, had_waiting) = (running.len(), waiting.len());
        running.retain(|(other, _)| *other != handshake);
        waiting.retain(|other| *other != handshake);
        let (ended, left) = (had_running - running.len(), had_waiting - waiting.len());
        self.running -= ended;
        self.waiting -= left;
        if running.is_empty() && waiting.is_empty() {
            self.sources.remove(&handshake.source);
        }
        ended + left > 0
    }
}

#[cfg(test)]
mod tests;
