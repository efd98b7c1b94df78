//! The states of the watched objects of a cluster, and which releases are notified of a change. Pure.

mod absent;
mod followed;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use chandler_api::status::ObjectRecord;
use chandler_core::{
    health::{ObjectState, Observation, UNHEALTHY_GRACE_PERIOD},
    identity::ReleaseId,
};
use jiff::Timestamp;

use self::{absent::Absences, followed::Followed};
use super::{
    kind::{ObjectKind, SharedKind, watched},
    object::{ObjectHead, ObjectKey, object_key},
};

/// Maximum number of objects of a kind whose states are kept.
pub const MAX_OBJECTS: usize = 20_000;

/// What a list has shown.
pub type Listed = HashMap<ObjectKey, (Option<ReleaseId>, ObjectState)>;

/// The states of the watched objects of a cluster. Functions that change them return the releases to notify.
#[derive(Debug, Default)]
pub struct States {
    /// The kinds of each release's objects, sorted.
    releases: HashMap<Arc<ReleaseId>, Vec<SharedKind>>,
    /// How many releases use a kind.
    users: BTreeMap<SharedKind, usize>,
    /// The kinds to watch.
    kinds: BTreeMap<SharedKind, KindStates>,
    /// The releases whose objects are compared with their packages.
    followed: BTreeSet<ReleaseId>,
    /// The kinds whose objects have to be listed again.
    restarts: Vec<SharedKind>,
}

#[derive(Debug, Default)]
struct KindStates {
    progress: Progress,
    objects: HashMap<ObjectKey, Entry>,
    absences: Absences,
    followed: Followed,
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

/// An object that exists.
#[derive(Debug)]
struct Entry {
    observation: Observation,
    release: Option<Arc<ReleaseId>>,
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
        let before = self.releases.insert(Arc::new(release.clone()), kinds);
        self.remove_users(before.unwrap_or_default());
        self.select_kinds()
    }

    /// Forgets a release. Returns whether other kinds have to be watched now.
    pub fn forget(&mut self, release: &ReleaseId) -> bool {
        self.set_followed(release, false);
        let Some(kinds) = self.releases.remove(release) else { return false };
        self.remove_users(kinds);
        self.select_kinds()
    }

    /// Returns the kinds to watch.
    pub fn watched(&self) -> BTreeSet<SharedKind> {
        self.kinds.keys().cloned().collect()
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
        self.kinds.retain(|kind, _| selected.contains(kind));
        for kind in selected {
            self.kinds.entry(kind).or_default();
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
            return (entry.observation.clone(), false);
        }
        // Jobs are removed after a while, which is healthy: a check would be a request without a purpose.
        if object.kind == "Job" && object.api_version.starts_with("batch/") {
            return (Observation::Missing { since: now }, false);
        }
        states.absences.observation(key, now)
    }

    /// Takes in all objects of a kind.
    pub fn listed(&mut self, kind: &ObjectKind, listed: Listed, now: Timestamp) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let is_first = states.progress != Progress::Listed;
        states.progress = Progress::Listed;
        let mut changed = Vec::new();
        let mut before = std::mem::take(&mut states.objects);
        for (key, (release, state)) in listed {
            let last = before.remove(&key).map(|entry| entry.observation);
            let release = share(&self.releases, release);
            if states.store(key, state, release.clone(), last, now) {
                changed.push(release);
            }
        }
        for (key, gone) in before {
            states.absences.vanished(key, &gone.observation, gone.release.clone(), now);
            changed.push(gone.release);
        }
        states.objects.shrink_to_fit();
        if is_first { self.complete_users(kind) } else { self.affected(kind, changed) }
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
                *states = KindStates { progress: Progress::NotServed, ..KindStates::default() };
            }
            _ => return Vec::new(),
        }
        self.complete_users(kind)
    }

    /// Takes in an object that was created or has changed.
    pub fn changed(
        &mut self,
        kind: &ObjectKind,
        head: ObjectHead,
        state: ObjectState,
        now: Timestamp,
    ) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let last = states.objects.get(&head.key).map(|entry| entry.observation.clone());
        if last.is_none() && states.objects.len() >= MAX_OBJECTS {
            return Vec::new();
        }
        let release = share(&self.releases, head.release);
        let must_notify = states.store(head.key, state, release.clone(), last, now);
        if must_notify { self.affected(kind, vec![release]) } else { Vec::new() }
    }

    /// Takes in that an object was deleted, or is not selected any more.
    pub fn deleted(&mut self, kind: &ObjectKind, head: &ObjectHead, now: Timestamp) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let Some(Entry { observation, release }) = states.objects.remove(&head.key) else {
            return Vec::new();
        };
        states.absences.vanished(head.key.clone(), &observation, release.clone(), now);
        states.followed.vanished(&head.key);
        self.affected(kind, vec![release])
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
    /// Stores the state of an object. Returns whether its release has to be notified.
    fn store(
        &mut self,
        key: ObjectKey,
        state: ObjectState,
        release: Option<Arc<ReleaseId>>,
        last: Option<Observation>,
        now: Timestamp,
    ) -> bool {
        let absence = self.absences.appeared(&key);
        let last = last.or(absence);
        let observation = Observation::after(last.as_ref(), Some(state), now);
        let must_notify = must_notify(last.as_ref(), &observation, now);
        self.objects.insert(key, Entry { observation, release });
        must_notify
    }
}

/// Releases are few, and their objects many.
fn share(
    known: &HashMap<Arc<ReleaseId>, Vec<SharedKind>>,
    release: Option<ReleaseId>,
) -> Option<Arc<ReleaseId>> {
    let release = release?;
    Some(known.get_key_value(&release).map_or_else(|| Arc::new(release), |(known, _)| known.clone()))
}

fn uses(kinds: &[SharedKind], kind: &ObjectKind) -> bool {
    kinds.iter().any(|one| **one == *kind)
}

/// Returns whether a release has to be notified of an object's new state: if the object is healthy now and was not, or the other
/// way round. A new reason counts only if it is shown: before, the release is reconciled when the grace period of the object
/// ends.
fn must_notify(before: Option<&Observation>, after: &Observation, now: Timestamp) -> bool {
    let Some(before) = before else { return true };
    if health(before) != health(after) {
        return true;
    }
    let Observation::Seen { state: ObjectState::Progressing(_) | ObjectState::Failed(_), since } = after
    else {
        return false;
    };
    before != after && now.duration_since(*since).unsigned_abs() >= UNHEALTHY_GRACE_PERIOD
}

#[derive(PartialEq, Eq)]
enum Health {
    Healthy,
    Unhealthy,
    Missing,
    Unknown,
}

fn health(observation: &Observation) -> Health {
    match observation {
        Observation::Missing { .. } => Health::Missing,
        Observation::Seen { state: ObjectState::Healthy, .. } => Health::Healthy,
        Observation::Seen { state: ObjectState::Progressing(_) | ObjectState::Failed(_), .. } => {
            Health::Unhealthy
        }
        Observation::NotListed | Observation::Seen { state: ObjectState::Unknown, .. } => Health::Unknown,
    }
}
