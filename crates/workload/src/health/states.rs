//! The states of the watched objects of a cluster, and which releases are notified of a change. Pure.

mod absent;
mod confirm;
mod entry;
mod fingerprints;
mod health_checks;
mod left_out;
mod notify;
mod objects;
mod positions;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map},
    sync::Arc,
};

use chandler_api::status::ObjectRecord;
use chandler_core::{
    health::{HealthChecks, ObjectState, Observation},
    identity::ReleaseId,
};
use jiff::Timestamp;

pub use self::fingerprints::Fingerprints;
use self::{
    absent::Absences,
    entry::{Entry, reason_bytes},
    fingerprints::Fingerprinted,
    health_checks::CheckChanges,
    left_out::LeftOut,
    notify::must_notify,
    objects::{Objects, object_bytes},
};
use super::{
    kind::{ObjectKind, SharedKind, watched},
    object::{ObjectHead, ObjectKey, object_key},
    source::Position,
};

/// Maximum number of objects of a kind whose states are kept.
pub const MAX_OBJECTS: usize = 20_000;
/// What is remembered of an object that does not exist, or of a release whose objects are left out, takes about this memory.
const PER_ABSENCE: usize = 512;

/// What a list has shown.
#[derive(Debug, Default)]
pub struct Listed {
    pub objects: BTreeMap<ObjectKey, (Option<ReleaseId>, ObjectState)>,
    /// How much memory they take, about.
    pub bytes: usize,
    pub left_out: LeftOut,
    /// The fingerprints of the objects, if they are needed.
    pub fingerprints: Option<Fingerprints>,
    /// Which health checks the states result from.
    checks_version: u64,
    /// When the list has begun.
    began: Option<Timestamp>,
}

impl Listed {
    /// Adds an object.
    pub fn insert(&mut self, key: ObjectKey, release: Option<ReleaseId>, state: ObjectState) {
        let names = release.as_ref().map_or(0, |release| release.namespace.len() + release.name.len());
        self.bytes += object_bytes(&key, reason_bytes(&state)) + names;
        self.objects.insert(key, (release, state));
    }
}

/// An object that was read.
#[derive(Debug)]
pub struct ReadObject {
    pub head: ObjectHead,
    pub state: ObjectState,
    /// Which health checks the state results from.
    pub checks_version: u64,
    /// `None` if it is not needed.
    pub fingerprint: Option<u64>,
}

/// The states of the watched objects of a cluster. Functions that change them return the releases to notify.
#[derive(Debug, Default)]
pub struct States {
    /// The kinds of each release's objects, sorted.
    releases: HashMap<Arc<ReleaseId>, Vec<SharedKind>>,
    /// How many releases use a kind.
    users: BTreeMap<SharedKind, usize>,
    /// The kinds to watch.
    kinds: BTreeMap<SharedKind, KindStates>,
    /// Those whose watch has to begin again, with a list.
    to_list_again: BTreeSet<SharedKind>,
    /// The health checks of the releases that have some.
    checks: HashMap<ReleaseId, HealthChecks>,
    /// Counts the changes of the health checks, and the kinds that are not watched any more: a list of one of them may not have
    /// ended yet when the kind is watched again.
    checks_version: u64,
    /// The releases whose objects are compared with their packages.
    to_compare: BTreeSet<ReleaseId>,
}

#[derive(Debug, Default)]
struct KindStates {
    progress: Progress,
    objects: Objects,
    absences: Absences,
    position: Option<Position>,
    left_out: LeftOut,
    /// A release uses the kind whose objects may have been left out, or were read with other health checks, or the server was
    /// restored from a backup: the next list shows them.
    is_outdated: bool,
    /// When the last list has begun.
    list_began: Option<Timestamp>,
    /// When the cluster has refused a list, since the last one.
    refused_at: Option<Timestamp>,
    /// Whether a release waits for a list.
    is_awaited: bool,
    check_changes: CheckChanges,
    fingerprinted: Fingerprinted,
}

/// How much is known of the objects of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// No list has ended yet.
    #[default]
    Waiting,
    /// No list has succeeded yet.
    Failed,
    Listed,
    /// The cluster does not serve the kind.
    NotServed,
}

/// An object whose existence has to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub due: Timestamp,
    pub kind: SharedKind,
    pub key: ObjectKey,
}

impl States {
    /// Sets the kinds that a release uses. Returns whether other kinds have to be watched now.
    pub fn set_kinds(&mut self, release: &ReleaseId, kinds: BTreeSet<(String, String)>) -> bool {
        let kinds = kinds.into_iter().map(|(api_version, kind)| ObjectKind { api_version, kind });
        let kinds: Vec<SharedKind> = kinds.map(|kind| self.share(kind)).collect();
        if self.releases.get(release) == Some(&kinds) {
            return false;
        }
        for kind in &kinds {
            *self.users.entry(kind.clone()).or_default() += 1;
        }
        let before = self.releases.insert(Arc::new(release.clone()), kinds.clone()).unwrap_or_default();
        let added = kinds.into_iter().filter(|kind| !uses(&before, kind));
        let lists_again = self.list_left_out(release, added.collect());
        self.remove_users(before);
        let selects_others = self.select_kinds();
        self.fingerprint_kinds() || selects_others || lists_again
    }

    /// Forgets a release, and its objects. Returns whether other kinds have to be watched now.
    pub fn forget(&mut self, release: &ReleaseId) -> bool {
        self.forget_checks(release);
        self.to_compare.remove(release);
        let Some(kinds) = self.releases.remove(release) else { return false };
        self.remove_users(kinds);
        let changed = self.select_kinds();
        for states in self.kinds.values_mut() {
            states.leave_out(release);
        }
        self.fingerprint_kinds() || changed
    }

    /// Takes in that a release begins to use kinds. Returns whether one of them has to be listed again, because objects of the
    /// release were left out.
    fn list_left_out(&mut self, release: &ReleaseId, added: Vec<SharedKind>) -> bool {
        let is_left_out = |kind: &SharedKind| {
            self.kinds.get(kind).is_some_and(|states| states.left_out.may_contain(release))
        };
        let left_out: Vec<_> = added.into_iter().filter(is_left_out).collect();
        self.list_again(left_out)
    }

    /// Takes in that what is known of kinds is outdated. Returns whether one of them has to be listed again.
    fn list_again(&mut self, kinds: Vec<SharedKind>) -> bool {
        let mut must_list = false;
        for kind in kinds {
            if let Some(states) = self.kinds.get_mut(&kind) {
                states.is_outdated = true;
                self.to_list_again.insert(kind);
                must_list = true;
            }
        }
        must_list
    }

    /// Returns whether the objects of a release are kept because the release is known. Those of no release may belong to any.
    pub fn knows(&self, release: Option<&ReleaseId>) -> bool {
        release.is_none_or(|release| self.releases.contains_key(release))
    }

    /// Returns whether the last list of a kind has left out objects that a release asks for, shows outdated states, or was read
    /// without the fingerprints that a release asks for.
    pub fn is_outdated(&self, kind: &ObjectKind) -> bool {
        self.kinds.get(kind).is_some_and(KindStates::must_list)
    }

    /// Returns the kinds to watch, and those among them whose watch has to begin again, with a list. Returns the latter once.
    pub fn watches(&mut self) -> (BTreeSet<SharedKind>, BTreeSet<SharedKind>) {
        (self.kinds.keys().cloned().collect(), std::mem::take(&mut self.to_list_again))
    }

    /// Returns whether a watch has to begin again, with a list.
    pub fn must_list_again(&self) -> bool {
        !self.to_list_again.is_empty()
    }

    fn share(&self, kind: ObjectKind) -> SharedKind {
        self.users.get_key_value(&kind).map_or_else(|| Arc::new(kind), |(known, _)| known.clone())
    }

    fn remove_users(&mut self, kinds: Vec<SharedKind>) {
        for kind in kinds {
            if let Some(users) = self.users.get_mut(&kind) {
                *users -= 1;
                if *users == 0 {
                    self.users.remove(&kind);
                }
            }
        }
    }

    /// Keeps the states of the kinds to watch only.
    fn select_kinds(&mut self) -> bool {
        let selected = watched(self.users.keys().cloned().collect());
        if self.kinds.keys().eq(&selected) {
            return false;
        }
        let before = self.kinds.len();
        self.kinds.retain(|kind, _| selected.contains(kind));
        if self.kinds.len() < before {
            self.checks_version += 1;
        }
        for kind in selected {
            if let btree_map::Entry::Vacant(new) = self.kinds.entry(kind) {
                // Its watch may still be open because a release used the kind until just now.
                self.to_list_again.insert(new.key().clone());
                let check_changes = CheckChanges::new(self.checks_version);
                new.insert(KindStates { check_changes, ..KindStates::default() });
            }
        }
        true
    }

    /// Returns what is known of an object, and whether a check of its existence is due because of the question.
    pub fn observation(&mut self, object: &ObjectRecord, now: Timestamp) -> (Observation, bool) {
        let kind = ObjectKind::new(&object.api_version, &object.kind);
        let listed = self.kinds.get_mut(&kind).filter(|states| states.progress == Progress::Listed);
        let Some(states) = listed else { return (Observation::NotListed, false) };
        let key = object_key(&object.namespace, &object.name);
        if let Some(entry) = states.objects.get(&key) {
            let observation = if entry.is_outdated { Observation::NotListed } else { entry.observation() };
            return (observation, false);
        }
        if states.is_outdated {
            return (Observation::NotListed, false);
        }
        // Jobs are removed after a while, which is healthy: a check would be a request without a purpose.
        if object.kind == "Job" && object.api_version.starts_with("batch/") {
            return (Observation::Missing { since: now }, false);
        }
        states.absences.observation(key, now)
    }

    /// Returns how much memory is taken, about.
    pub fn bytes(&self) -> usize {
        self.kinds.values().map(KindStates::bytes).sum()
    }

    /// Returns how much memory is taken, about, once the objects of a kind take so much.
    pub fn bytes_with(&self, kind: &ObjectKind, listed: usize) -> usize {
        let before = self.kinds.get(kind).map_or(0, |states| states.objects.bytes());
        self.bytes() - before + listed
    }

    /// Takes in all objects of a kind. The watch continues at the position.
    pub fn listed(
        &mut self,
        kind: &ObjectKind,
        listed: Listed,
        position: Position,
        now: Timestamp,
    ) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let is_first = states.progress != Progress::Listed || states.is_outdated;
        states.progress = Progress::Listed;
        states.position = Some(position);
        (states.list_began, states.refused_at) = (listed.began, None);
        // A release may have begun to use the kind after its objects were left out.
        let is_used = |release: &ReleaseId| self.releases.get(release).is_some_and(|kinds| uses(kinds, kind));
        let read = listed.checks_version;
        states.is_outdated =
            states.check_changes.has_all_changed(read) || listed.left_out.remembered().any(is_used);
        states.left_out = listed.left_out;
        let (mut changed, mut shared) = (Vec::new(), HashSet::<Arc<ReleaseId>>::new());
        let mut before = std::mem::take(&mut states.objects);
        for (key, (release, state)) in listed.objects {
            let last = before.remove(&key);
            let release = share(&self.releases, release).map(|release| {
                // Those that are not known yet have many objects, too.
                shared.get(&release).cloned().unwrap_or_else(|| {
                    shared.insert(release.clone());
                    release
                })
            });
            if states.store(key, (state, read), release.clone(), last, now) {
                changed.push(release);
            }
        }
        for (key, gone) in before.into_entries() {
            states.absences.vanished(key, &gone.observation(), gone.release.clone(), now);
            changed.push(gone.release);
        }
        states.objects = std::mem::take(&mut states.objects).compacted();
        states.check_changes.listed(read);
        let to_compare = match listed.fingerprints {
            Some(fingerprints) => self.listed_fingerprints(kind, fingerprints),
            None => Vec::new(),
        };
        let releases = if is_first { self.complete_users(kind) } else { self.affected(kind, changed) };
        union(releases, to_compare)
    }

    /// Takes in that a list has failed. The last known states stay valid.
    pub fn failed(&mut self, kind: &ObjectKind) -> Vec<ReleaseId> {
        match self.kinds.get_mut(kind) {
            Some(states) if states.progress == Progress::Waiting => states.progress = Progress::Failed,
            _ => return Vec::new(),
        }
        self.complete_users(kind)
    }

    /// Takes in that the cluster does not serve a kind.
    pub fn not_served(&mut self, kind: &ObjectKind) -> Vec<ReleaseId> {
        match self.kinds.get_mut(kind) {
            Some(states) if states.progress != Progress::NotServed => {
                let check_changes = std::mem::take(&mut states.check_changes);
                let fingerprinted = std::mem::take(&mut states.fingerprinted).unlisted();
                *states = KindStates {
                    progress: Progress::NotServed,
                    check_changes,
                    fingerprinted,
                    ..KindStates::default()
                };
            }
            _ => return Vec::new(),
        }
        self.complete_users(kind)
    }

    /// Takes in an object that was created or has changed. It is kept if its release is known or `is_managed`.
    pub fn changed(
        &mut self,
        kind: &ObjectKind,
        object: ReadObject,
        is_managed: bool,
        now: Timestamp,
    ) -> Vec<ReleaseId> {
        let ReadObject { head, state, checks_version, fingerprint } = object;
        let is_kept = is_managed || self.knows(head.release.as_ref());
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        if !is_kept {
            states.left_out.extend(head.release.clone());
            return self.deleted(kind, &head, now);
        }
        let last = states.objects.remove(&head.key);
        if last.is_none() && states.objects.len() >= MAX_OBJECTS {
            return Vec::new();
        }
        let is_new = fingerprint.is_some_and(|number| states.fingerprinted.changed(&head.key, number));
        let to_compare =
            if is_new { self.releases_to_compare(kind, head.release.as_ref()) } else { Vec::new() };
        let release = share(&self.releases, head.release);
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let was_outdated = states.is_outdated;
        let must_notify = states.store(head.key, (state, checks_version), release.clone(), last, now);
        if states.is_outdated && !was_outdated {
            let kind = self.share(kind.clone());
            self.to_list_again.insert(kind);
        }
        let releases = if must_notify { self.affected(kind, vec![release]) } else { Vec::new() };
        union(releases, to_compare)
    }

    /// Takes in that an object was deleted, or is not selected any more.
    pub fn deleted(&mut self, kind: &ObjectKind, head: &ObjectHead, now: Timestamp) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        states.fingerprinted.vanished(&head.key);
        let Some(gone) = states.objects.remove(&head.key) else { return Vec::new() };
        states.absences.vanished(head.key.clone(), &gone.observation(), gone.release.clone(), now);
        self.affected(kind, vec![gone.release])
    }

    /// Returns the check that is due first.
    pub fn next_check(&self) -> Option<Check> {
        let checks = self.kinds.iter().filter_map(|(kind, states)| {
            let (due, key) = states.absences.next_check()?;
            Some(Check { due, kind: kind.clone(), key: key.clone() })
        });
        checks.min_by_key(|check| check.due)
    }

    /// Takes in whether an object exists. `None` means that the check has failed.
    pub fn checked(&mut self, check: &Check, exists: Option<bool>, now: Timestamp) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(&check.kind) else { return Vec::new() };
        let changed = states.absences.checked(&check.key, exists, now);
        self.affected(&check.kind, changed)
    }

    /// Returns the releases that use a kind, if each of their kinds was tried: before, too little is known of them.
    fn complete_users(&self, kind: &ObjectKind) -> Vec<ReleaseId> {
        let was_tried = |kind: &SharedKind| {
            self.kinds.get(kind).is_none_or(|states| states.progress != Progress::Waiting)
        };
        let users =
            self.releases.iter().filter(|(_, kinds)| uses(kinds, kind) && kinds.iter().all(was_tried));
        users.map(|(release, _)| ReleaseId::clone(release)).collect()
    }

    /// Returns the releases to notify of changed objects. An object without a release may belong to all that use its kind.
    fn affected(&self, kind: &ObjectKind, changed: Vec<Option<Arc<ReleaseId>>>) -> Vec<ReleaseId> {
        let changed: Option<BTreeSet<Arc<ReleaseId>>> = changed.into_iter().collect();
        let is_user =
            |release: &Arc<ReleaseId>| self.releases.get(release).is_some_and(|kinds| uses(kinds, kind));
        match changed {
            Some(changed) => {
                changed.iter().filter(|one| is_user(one)).map(|one| ReleaseId::clone(one)).collect()
            }
            None => {
                self.releases.keys().filter(|one| is_user(one)).map(|one| ReleaseId::clone(one)).collect()
            }
        }
    }
}

impl KindStates {
    fn bytes(&self) -> usize {
        self.objects.bytes() + PER_ABSENCE * (self.absences.len() + self.left_out.len())
    }

    /// Removes the objects of a release.
    fn leave_out(&mut self, release: &ReleaseId) {
        let before = self.objects.len();
        let fingerprinted = &mut self.fingerprinted;
        self.objects.retain(|key, entry| {
            let is_kept = entry.release.as_deref() != Some(release);
            if !is_kept {
                fingerprinted.vanished(key);
            }
            is_kept
        });
        if self.objects.len() < before {
            self.left_out.extend([release.clone()]);
        }
    }

    /// Returns whether the last list does not show all that releases ask for.
    fn must_list(&self) -> bool {
        self.is_outdated || matches!(self.fingerprinted, Fingerprinted::Listing)
    }

    /// Stores the state of an object, which results from this version of the health checks. Returns whether its release has to
    /// be notified.
    fn store(
        &mut self,
        key: ObjectKey,
        (state, read): (ObjectState, u64),
        release: Option<Arc<ReleaseId>>,
        last: Option<Entry>,
        now: Timestamp,
    ) -> bool {
        let absence = self.absences.appeared(&key);
        let was_outdated = last.as_ref().is_some_and(|entry| entry.is_outdated);
        let last = last.map(|entry| entry.observation()).or(absence);
        let observation = Observation::after(last.as_ref(), Some(state), now);
        let is_outdated = self.check_changes.has_changed(release.as_deref(), read);
        self.is_outdated |= is_outdated;
        let must_notify = was_outdated || must_notify(last.as_ref(), &observation, now);
        if let Observation::Seen { state, since } = observation {
            self.objects.insert(key, Entry::new(state, since, release, is_outdated));
        }
        must_notify && !is_outdated
    }
}

/// Returns a map without the room that inserting leaves in its nodes.
fn compact<V>(map: BTreeMap<ObjectKey, V>) -> BTreeMap<ObjectKey, V> {
    map.into_iter().collect()
}

/// Releases are few, and their objects many.
fn share(
    known: &HashMap<Arc<ReleaseId>, Vec<SharedKind>>,
    release: Option<ReleaseId>,
) -> Option<Arc<ReleaseId>> {
    let release = release?;
    Some(known.get_key_value(&release).map_or_else(|| Arc::new(release), |(known, _)| known.clone()))
}

/// Returns all releases, each once.
fn union(releases: Vec<ReleaseId>, others: Vec<ReleaseId>) -> Vec<ReleaseId> {
    if others.is_empty() {
        return releases;
    }
    releases.into_iter().chain(others).collect::<BTreeSet<_>>().into_iter().collect()
}

fn uses(kinds: &[SharedKind], kind: &ObjectKind) -> bool {
    kinds.iter().any(|one| **one == *kind)
}
