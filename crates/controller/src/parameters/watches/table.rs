//! Decides which readings are watched, and which placements are enqueued when they change.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::{parameters::objects::Reading, queue::RESYNC};

/// How many readings are watched. Each takes a connection. The others are polled.
const MAX_WATCHES: usize = 256;
/// How many readings of the placements of one namespace are watched, so that one namespace does not take all of them.
const MAX_PER_NAMESPACE: usize = 64;
/// How long a reading is watched without being used. All placements are reconciled within [`RESYNC`].
const UNUSED: Duration = RESYNC.saturating_mul(3);
/// How long a collection that may not be watched is only polled.
const REFUSED: Duration = RESYNC;
/// How often the changes of a reading enqueue placements. Each time, all of their clusters are reconciled.
const TRIGGER: Duration = Duration::from_secs(5);

/// A placement that reads parameters from objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    pub namespace: String,
    pub uid: String,
}

/// The user and the path of a collection.
type Collection = (Option<String>, String);

/// The readings that are watched.
#[derive(Default)]
pub struct WatchTable {
    watched: HashMap<Reading, Watched>,
    /// What may not be watched, and when that was found.
    refused: HashMap<Collection, Instant>,
}

struct Watched {
    /// The placements that use it, and when they did last.
    placements: BTreeMap<Placement, Instant>,
    /// When a change has enqueued them last, or will.
    triggered: Option<Instant>,
}

impl WatchTable {
    /// Records that a placement uses a reading. Returns whether a watch of it has to begin.
    pub fn keep(&mut self, reading: &Reading, placement: &Placement, now: Instant) -> bool {
        if let Some(known) = self.watched.get_mut(reading) {
            known.placements.insert(placement.clone(), now);
            return false;
        }
        self.refused.retain(|_, at| now.duration_since(*at) < REFUSED);
        let of_namespace =
            |one: &&Watched| one.placements.keys().any(|one| one.namespace == placement.namespace);
        if self.refused.contains_key(&collection(reading))
            || self.watched.len() >= MAX_WATCHES
            || self.watched.values().filter(of_namespace).count() >= MAX_PER_NAMESPACE
        {
            return false;
        }
        let placements = BTreeMap::from([(placement.clone(), now)]);
        self.watched.insert(reading.clone(), Watched { placements, triggered: None });
        true
    }

    /// Returns whether a reading has been used lately. If not, it is not watched any more.
    pub fn is_used(&mut self, reading: &Reading, now: Instant) -> bool {
        let Some(watched) = self.watched.get_mut(reading) else { return false };
        watched.placements.retain(|_, used| now.duration_since(*used) < UNUSED);
        let is_used = !watched.placements.is_empty();
        if !is_used {
            self.watched.remove(reading);
        }
        is_used
    }

    /// Records that a reading may not be watched, and lets others be watched instead.
    pub fn refuse(&mut self, reading: &Reading, now: Instant) {
        self.watched.remove(reading);
        self.refused.insert(collection(reading), now);
    }

    /// Records a change. Returns when to enqueue placements, or `None` if a former change will do so.
    pub fn on_change(&mut self, reading: &Reading, now: Instant) -> Option<Instant> {
        let watched = self.watched.get_mut(reading)?;
        let due = watched.triggered.map_or(now, |last| now.max(last + TRIGGER));
        if watched.triggered.is_some_and(|last| last > now) {
            return None;
        }
        watched.triggered = Some(due);
        Some(due)
    }

    /// Returns the placements that use a reading.
    pub fn trigger(&mut self, reading: &Reading, now: Instant) -> Vec<Placement> {
        let Some(watched) = self.watched.get_mut(reading) else { return Vec::new() };
        watched.triggered = Some(now);
        let used = watched.placements.iter().filter(|(_, used)| now.duration_since(**used) < UNUSED);
        used.map(|(placement, _)| placement.clone()).collect()
    }
}

fn collection(reading: &Reading) -> Collection {
    (reading.user.clone(), reading.collection.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::objects::What;

    fn reading(collection: &str, name: &str) -> Reading {
        Reading { user: None, collection: collection.to_owned(), what: What::Name(name.to_owned()) }
    }

    fn placement(namespace: &str, uid: &str) -> Placement {
        Placement { namespace: namespace.to_owned(), uid: uid.to_owned() }
    }

    #[test]
    fn what_may_not_be_watched_takes_no_place() {
        let (mut table, start) = (WatchTable::default(), Instant::now());
        let one = placement("fleet", "1");
        assert!(table.keep(&reading("secrets", "a"), &one, start));
        table.refuse(&reading("secrets", "a"), start);
        assert!(!table.is_used(&reading("secrets", "a"), start));
        let soon = start + Duration::from_secs(1);
        assert!(!table.keep(&reading("secrets", "b"), &one, soon), "the same collection");
        assert!(table.keep(&reading("configmaps", "a"), &one, soon));
        let as_other = Reading { user: Some("other".to_owned()), ..reading("secrets", "a") };
        assert!(table.keep(&as_other, &one, soon), "another user");
        assert!(table.keep(&reading("secrets", "b"), &one, start + REFUSED), "it is tried again");
    }

    #[test]
    fn a_namespace_does_not_take_all_watches() {
        let (mut table, now) = (WatchTable::default(), Instant::now());
        let begun = |table: &mut WatchTable, namespace: &str| {
            let name = |number: usize| reading(namespace, &number.to_string());
            (0..MAX_WATCHES)
                .filter(|number| table.keep(&name(*number), &placement(namespace, "1"), now))
                .count()
        };
        let namespaces = ["a", "b", "c", "d", "e"];
        let counts = namespaces.map(|namespace| begun(&mut table, namespace));
        assert_eq!(counts, [MAX_PER_NAMESPACE, MAX_PER_NAMESPACE, MAX_PER_NAMESPACE, MAX_PER_NAMESPACE, 0]);
    }

    #[test]
    fn changes_enqueue_the_placements_that_read_and_not_too_often() {
        let (mut table, start) = (WatchTable::default(), Instant::now());
        let (settings, other) = (reading("configmaps", "settings"), reading("configmaps", "other"));
        assert!(table.keep(&settings, &placement("fleet", "1"), start));
        assert!(!table.keep(&settings, &placement("fleet", "2"), start), "it is watched already");
        assert!(table.keep(&other, &placement("fleet", "3"), start));
        assert_eq!(table.on_change(&settings, start), Some(start), "the first one at once");
        assert_eq!(table.trigger(&settings, start), [placement("fleet", "1"), placement("fleet", "2")]);
        let soon = start + Duration::from_secs(1);
        assert_eq!(table.on_change(&settings, soon), Some(start + TRIGGER));
        assert_eq!(table.on_change(&settings, soon), None, "the next one covers it");
        assert_eq!(table.on_change(&other, soon), Some(soon));
        table.trigger(&settings, start + TRIGGER);
        let later = start + 3 * TRIGGER;
        assert_eq!(table.on_change(&settings, later), Some(later));
        assert_eq!(table.on_change(&reading("configmaps", "absent"), later), None);
    }

    #[test]
    fn placements_that_no_longer_read_are_forgotten() {
        let (mut table, start) = (WatchTable::default(), Instant::now());
        let settings = reading("configmaps", "settings");
        table.keep(&settings, &placement("fleet", "1"), start);
        table.keep(&settings, &placement("fleet", "2"), start);
        table.keep(&settings, &placement("fleet", "2"), start + RESYNC);
        assert_eq!(table.trigger(&settings, start + UNUSED), [placement("fleet", "2")]);
        assert!(table.is_used(&settings, start + UNUSED));
        assert!(!table.is_used(&settings, start + UNUSED + RESYNC));
        assert!(table.keep(&settings, &placement("fleet", "1"), start + UNUSED + RESYNC), "it begins again");
    }
}
