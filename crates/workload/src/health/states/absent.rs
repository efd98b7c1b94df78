//! Objects that should exist, but that a watch does not show.
//!
//! That alone does not prove that an object is missing: its labels may have been changed, so that the watch does not select it
//! any more. So it is read by its name before it counts as missing, but only if a release asks for it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chandler_core::{health::Observation, identity::ReleaseId};
use jiff::Timestamp;

use crate::health::object::ObjectKey;

/// Maximum number of objects of a kind that are remembered.
const MAX_ABSENT: usize = 1_000;
/// A check that has failed is repeated after this time.
const RETRY: Duration = Duration::from_secs(30);
/// An object is read again if its release asks for it so much later: it may exist again without the labels, or be gone.
const CHECK_AGAIN: Duration = Duration::from_mins(1);
/// An object that no release has asked for since is forgotten if there are too many.
const FORGET_AFTER: Duration = Duration::from_hours(1);

/// The objects of a kind that its watch does not show.
#[derive(Debug, Default)]
pub struct Absences(HashMap<ObjectKey, Absence>);

#[derive(Debug)]
struct Absence {
    /// Since when the object is missing, if it is.
    missing: Observation,
    release: Option<Arc<ReleaseId>>,
    /// The result of the last check, and when it was.
    exists: Option<(bool, Timestamp)>,
    /// When the next check is due. `None` means that no check is needed.
    due: Option<Timestamp>,
    /// When a release has asked for the object last.
    asked: Option<Timestamp>,
}

impl Absences {
    /// Takes in that an object is not shown any more.
    pub fn vanished(
        &mut self,
        key: ObjectKey,
        last: &Observation,
        release: Option<Arc<ReleaseId>>,
        now: Timestamp,
    ) {
        if self.has_room(now) {
            let missing = Observation::after(Some(last), None, now);
            self.0.insert(key, Absence { missing, release, exists: None, due: None, asked: None });
        }
    }

    /// Takes in that an object is shown. Returns what was observed of its absence.
    pub fn appeared(&mut self, key: &str) -> Option<Observation> {
        self.0.remove(key).map(|absence| absence.missing)
    }

    /// Returns what is known of an object, and whether a check is due because of the question.
    pub fn observation(&mut self, key: ObjectKey, now: Timestamp) -> (Observation, bool) {
        if !self.0.contains_key(&key) && !self.has_room(now) {
            return (Observation::NotListed, false);
        }
        let absence = self.0.entry(key).or_insert_with(|| Absence {
            missing: Observation::after(None, None, now),
            release: None,
            exists: None,
            due: None,
            asked: None,
        });
        absence.asked = Some(now);
        let is_outdated = absence.exists.is_none_or(|(_, checked)| !is_within(CHECK_AGAIN, checked, now));
        let begins = is_outdated && absence.due.is_none();
        if begins {
            absence.due = Some(now);
        }
        match absence.exists {
            Some((false, _)) => (absence.missing.clone(), begins),
            None | Some((true, _)) => (Observation::NotListed, begins),
        }
    }

    /// Returns the number of objects that are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether one more object can be remembered. Those that no release has asked for lately are forgotten first: most
    /// of them were deleted together with their release.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.0.len() >= MAX_ABSENT {
            self.0
                .retain(|_, absence| absence.asked.is_some_and(|asked| is_within(FORGET_AFTER, asked, now)));
        }
        self.0.len() < MAX_ABSENT
    }

    /// Returns the check that is due first.
    pub fn next_check(&self) -> Option<(Timestamp, &ObjectKey)> {
        let due = self.0.iter().filter_map(|(key, absence)| Some((absence.due?, key)));
        due.min_by_key(|(due, _)| *due)
    }

    /// Takes in whether an object exists; `None` means that the check has failed. Returns the release of the object if something
    /// else is known now.
    pub fn checked(
        &mut self,
        key: &str,
        exists: Option<bool>,
        now: Timestamp,
    ) -> Vec<Option<Arc<ReleaseId>>> {
        // Without an entry, the watch has shown the object meanwhile.
        let Some(absence) = self.0.get_mut(key) else { return Vec::new() };
        let Some(exists) = exists else {
            absence.due = now.checked_add(RETRY).ok();
            return Vec::new();
        };
        absence.due = None;
        match absence.exists.replace((exists, now)) {
            Some((before, _)) if before == exists => return Vec::new(),
            // It was deleted after the last check.
            Some((true, _)) => absence.missing = Observation::after(None, None, now),
            _ => {}
        }
        vec![absence.release.clone()]
    }
}

/// Returns whether a time is less than `duration` ago.
fn is_within(duration: Duration, time: Timestamp, now: Timestamp) -> bool {
    now.duration_since(time).unsigned_abs() < duration
}
