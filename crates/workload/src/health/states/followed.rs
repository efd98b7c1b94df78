//! The fingerprints of objects, for releases whose objects are compared with their packages. Others cost nothing.

use std::collections::HashMap;

use chandler_api::status::ObjectRecord;
use chandler_core::{drift::Fingerprint, identity::ReleaseId};

use super::{Progress, States, uses};
use crate::health::{
    kind::{ObjectKind, SharedKind},
    object::{ObjectHead, ObjectKey, object_key},
};

/// The fingerprints of the objects of a kind.
#[derive(Debug, Default)]
pub enum Followed {
    /// No release needs them.
    #[default]
    No,
    /// The objects have to be listed again.
    Listing,
    Listed(HashMap<ObjectKey, u64>),
}

impl Followed {
    /// Takes in that an object is not shown any more. The release is notified anyway.
    pub fn vanished(&mut self, key: &str) {
        if let Self::Listed(fingerprints) = self {
            fingerprints.remove(key);
        }
    }
}

impl States {
    /// Sets whether changes of a release's objects are followed, of the kinds that were set before. Returns whether the objects
    /// of a kind have to be listed again.
    pub fn set_followed(&mut self, release: &ReleaseId, is_followed: bool) -> bool {
        if is_followed {
            self.followed.insert(release.clone());
        } else if !self.followed.remove(release) {
            return false;
        }
        let users = || self.followed.iter().filter_map(|release| self.releases.get(release));
        let is_used = |kind: &SharedKind| users().any(|kinds| uses(kinds, kind));
        let is_used: Vec<bool> = self.kinds.keys().map(is_used).collect();
        for ((kind, states), is_used) in self.kinds.iter_mut().zip(is_used) {
            match states.followed {
                Followed::No if is_used => {
                    states.followed = Followed::Listing;
                    self.restarts.push(kind.clone());
                }
                Followed::Listing | Followed::Listed(_) if !is_used => states.followed = Followed::No,
                _ => {}
            }
        }
        !self.restarts.is_empty()
    }

    /// Returns whether the fingerprints of a kind's objects are needed.
    pub fn is_followed(&self, kind: &ObjectKind) -> bool {
        self.kinds.get(kind).is_some_and(|states| !matches!(states.followed, Followed::No))
    }

    /// Returns the kinds whose watch has to begin with a list, once.
    pub fn take_restarts(&mut self) -> Vec<SharedKind> {
        std::mem::take(&mut self.restarts)
    }

    /// Takes in the fingerprints of all objects of a kind, after their states.
    pub fn listed_fingerprints(
        &mut self,
        kind: &ObjectKind,
        fingerprints: HashMap<ObjectKey, u64>,
    ) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let changed = match &states.followed {
            Followed::No => return Vec::new(),
            // All releases wait for them.
            Followed::Listing => vec![None],
            Followed::Listed(before) => {
                let is_changed =
                    |(key, fingerprint): &(&ObjectKey, &u64)| before.get(*key) != Some(*fingerprint);
                let keys = fingerprints.iter().filter(is_changed).map(|(key, _)| key);
                let changed = keys.map(|key| states.objects.get(key)?.release.clone());
                let gone = before.keys().filter(|key| !fingerprints.contains_key(*key)).map(|_| None);
                changed.chain(gone).collect()
            }
        };
        states.followed = Followed::Listed(fingerprints);
        self.affected(kind, changed).into_iter().filter(|one| self.followed.contains(one)).collect()
    }

    /// Takes in the fingerprint of an object that was created or has changed.
    pub fn set_fingerprint(
        &mut self,
        kind: &ObjectKind,
        head: &ObjectHead,
        fingerprint: u64,
    ) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let Followed::Listed(fingerprints) = &mut states.followed else { return Vec::new() };
        if fingerprints.insert(head.key.clone(), fingerprint) == Some(fingerprint) {
            return Vec::new();
        }
        let is_affected = |release: &&ReleaseId| {
            head.release.as_ref().is_none_or(|of| of == *release)
                && self.releases.get(*release).is_some_and(|kinds| uses(kinds, kind))
        };
        self.followed.iter().filter(is_affected).cloned().collect()
    }

    /// Returns the fingerprints of objects, in their order. `None` if some of them are not listed yet.
    pub fn fingerprints(&self, objects: &[ObjectRecord]) -> Option<Vec<Fingerprint>> {
        objects.iter().map(|object| self.fingerprint(object)).collect()
    }

    fn fingerprint(&self, object: &ObjectRecord) -> Option<Fingerprint> {
        let kind = ObjectKind::new(&object.api_version, &object.kind);
        let Some(states) = self.kinds.get(&kind) else {
            // Too many kinds are in use to watch this one, unless the release has not told its kinds yet.
            return self.users.contains_key(&kind).then_some(Fingerprint::Unwatched);
        };
        match (&states.progress, &states.followed) {
            (Progress::Failed | Progress::NotServed, _) => Some(Fingerprint::Unwatched),
            (Progress::Listed, Followed::Listed(fingerprints)) => {
                let seen = fingerprints.get(&object_key(&object.namespace, &object.name));
                Some(seen.map_or(Fingerprint::Missing, |fingerprint| Fingerprint::Seen(*fingerprint)))
            }
            (Progress::Waiting | Progress::Listed, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chandler_core::health::ObjectState;
    use jiff::Timestamp;

    use super::*;

    fn release(name: &str) -> ReleaseId {
        ReleaseId::new("shop", name)
    }

    fn config_maps() -> ObjectKind {
        ObjectKind::new("v1", "ConfigMap")
    }

    fn head(name: &str) -> ObjectHead {
        ObjectHead { key: object_key("shop", name), release: Some(release(name)), version: String::new() }
    }

    fn fingerprints(numbers: &[(&str, u64)]) -> HashMap<ObjectKey, u64> {
        numbers.iter().map(|(name, number)| (object_key("shop", name), *number)).collect()
    }

    /// The fingerprint of the ConfigMap of a release.
    fn seen(states: &States, name: &str) -> Option<Fingerprint> {
        let object = ObjectRecord {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        states.fingerprints(&[object]).map(|all| all[0])
    }

    /// The ConfigMaps of the releases `web`, which is followed, and `db`, which is not.
    fn followed() -> States {
        let mut states = States::default();
        for name in ["web", "db"] {
            states.set_kinds(&release(name), BTreeSet::from([("v1".to_owned(), "ConfigMap".to_owned())]));
        }
        let now = Timestamp::UNIX_EPOCH;
        let objects =
            ["web", "db"].map(|name| (object_key("shop", name), (Some(release(name)), ObjectState::Healthy)));
        states.listed(&config_maps(), objects.into_iter().collect(), now);
        assert!(!states.is_followed(&config_maps()) && states.take_restarts().is_empty());
        assert!(states.set_followed(&release("web"), true));
        assert_eq!(states.take_restarts().len(), 1, "its objects have to be listed again");
        assert!(!states.set_followed(&release("web"), true), "once");
        assert_eq!(seen(&states, "web"), None, "they are not listed yet");
        let first = states.listed_fingerprints(&config_maps(), fingerprints(&[("web", 1), ("db", 1)]));
        assert_eq!(first, [release("web")]);
        states
    }

    #[test]
    fn changes_of_a_followed_release_notify_it() {
        let mut states = followed();
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(1)));
        let kind = config_maps();
        assert_eq!(states.set_fingerprint(&kind, &head("web"), 1), []);
        assert_eq!(states.set_fingerprint(&kind, &head("web"), 2), [release("web")]);
        assert_eq!(states.set_fingerprint(&kind, &head("db"), 2), [], "it is not followed");
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(2)));
        let unlabeled = ObjectHead { release: None, ..head("other") };
        assert_eq!(states.set_fingerprint(&kind, &unlabeled, 1), [release("web")], "it may be its object");
        let again = states.listed_fingerprints(&kind, fingerprints(&[("web", 2), ("db", 9), ("other", 1)]));
        assert_eq!(again, []);
        assert_eq!(
            states.listed_fingerprints(&kind, fingerprints(&[("web", 3), ("db", 9)])),
            [release("web")]
        );
    }

    #[test]
    fn an_object_that_is_not_shown_is_missing() {
        let mut states = followed();
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(states.deleted(&config_maps(), &head("web"), now), [release("web")]);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Missing));
        states.set_fingerprint(&config_maps(), &head("web"), 5);
        assert_eq!(states.listed_fingerprints(&config_maps(), fingerprints(&[])), [release("web")]);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Missing));
    }

    #[test]
    fn what_is_not_served_cannot_be_followed() {
        let mut states = followed();
        states.not_served(&config_maps());
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Unwatched));
    }

    #[test]
    fn nothing_is_kept_for_releases_that_are_not_followed() {
        for forgets in [true, false] {
            let mut states = followed();
            if forgets {
                states.forget(&release("web"));
            } else {
                assert!(!states.set_followed(&release("web"), false));
            }
            assert!(!states.is_followed(&config_maps()));
            assert_eq!(seen(&states, "db"), None);
            assert_eq!(states.set_fingerprint(&config_maps(), &head("web"), 7), []);
        }
    }
}
