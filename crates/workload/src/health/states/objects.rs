//! The objects of a kind that exist, and how much memory they take.

use std::{
    collections::{BTreeMap, btree_map},
    ops::Deref,
};

use super::entry::Entry;
use crate::health::object::ObjectKey;

/// What an object takes besides its key, about.
const PER_OBJECT: usize = 96;

/// The objects of a kind. Those that are read are the same as in a map.
#[derive(Debug, Default)]
pub struct Objects {
    entries: BTreeMap<ObjectKey, Entry>,
    bytes: usize,
}

impl Objects {
    pub fn insert(&mut self, key: ObjectKey, entry: Entry) {
        self.remove(&key);
        self.bytes += entry_bytes(&key, &entry);
        self.entries.insert(key, entry);
    }

    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry_bytes(key, &entry);
        Some(entry)
    }

    /// Removes the objects for which `is_kept` returns false.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&ObjectKey, &Entry) -> bool) {
        let Self { entries, bytes } = self;
        entries.retain(|key, entry| {
            let is_kept = is_kept(key, entry);
            if !is_kept {
                *bytes -= entry_bytes(key, entry);
            }
            is_kept
        });
    }

    /// Takes in that the states of objects result from other health checks.
    pub fn values_mut(&mut self) -> btree_map::ValuesMut<'_, ObjectKey, Entry> {
        self.entries.values_mut()
    }

    /// Returns the objects without the room that inserting leaves in the nodes of a map.
    pub fn compacted(self) -> Self {
        Self { entries: super::compact(self.entries), bytes: self.bytes }
    }

    pub fn into_entries(self) -> BTreeMap<ObjectKey, Entry> {
        self.entries
    }

    /// Returns how much memory the objects take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Deref for Objects {
    type Target = BTreeMap<ObjectKey, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

fn entry_bytes(key: &str, entry: &Entry) -> usize {
    object_bytes(key, entry.reason_bytes())
}

/// Returns how much memory an object takes, about: also its key in the map of fingerprints.
pub fn object_bytes(key: &str, reason: usize) -> usize {
    PER_OBJECT + 2 * key.len() + reason
}

#[cfg(test)]
mod tests {
    use chandler_core::health::ObjectState;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_memory_of_objects_is_counted() {
        let entry = |state| Entry::new(state, Timestamp::UNIX_EPOCH, None, false);
        let mut objects = Objects::default();
        objects.insert("shop/a".into(), entry(ObjectState::Healthy));
        let one = objects.bytes();
        objects.insert("shop/b".into(), entry(ObjectState::Failed("crash".repeat(10))));
        assert!(objects.bytes() > 2 * one, "its reason counts");
        objects.insert("shop/b".into(), entry(ObjectState::Healthy));
        assert_eq!((objects.bytes(), objects.len()), (2 * one, 2));
        let mut objects = objects.compacted();
        objects.retain(|key, _| &**key != "shop/a");
        assert_eq!(objects.bytes(), one);
        assert!(objects.remove("shop/b").is_some() && objects.remove("shop/b").is_none());
        assert_eq!((objects.bytes(), objects.into_entries().len()), (0, 0));
    }
}
