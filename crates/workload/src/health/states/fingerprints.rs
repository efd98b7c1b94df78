//! The fingerprints of objects, for releases whose objects are compared with their packages. Others cost nothing.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::status::ObjectRecord;
use chandler_core::{drift::Fingerprint, identity::ReleaseId};

use super::{Progress, States, compact, uses};
use crate::health::{
    kind::{ObjectKind, SharedKind},
    object::{ObjectKey, object_key},
};

/// The fingerprints of objects.
pub type Fingerprints = BTreeMap<ObjectKey, u64>;

/// The fingerprints of the objects of a kind. Those of objects that are left out are not kept.
#[derive(Debug, Default)]
pub enum Fingerprinted {
    /// No release needs them.
    #[default]
    No,
    /// The objects have to be listed again.
    Listing,
    Listed(Fingerprints),
}

impl Fingerprinted {
    /// Takes in the fingerprint of an object that was created or has changed. Returns whether it is another one.
    pub fn changed(&mut self, key: &ObjectKey, fingerprint: u64) -> bool {
        match self {
            Self::No | Self::Listing => false,
            Self::Listed(fingerprints) => fingerprints.insert(key.clone(), fingerprint) != Some(fingerprint),
        }
    }

    /// Takes in that an object is not shown any more. The release is notified anyway.
    pub fn vanished(&mut self, key: &str) {
        if let Self::Listed(fingerprints) = self {
            fingerprints.remove(key);
        }
    }

    /// Forgets the fingerprints. They are still needed if they were.
    pub fn unlisted(self) -> Self {
        match self {
            Self::No => Self::No,
            Self::Listing | Self::Listed(_) => Self::Listing,
        }
    }
}

impl States {
    /// Sets whether a release's objects have fingerprints, because they are compared with its package. Returns whether the
    /// objects of a kind have to be listed again.
    pub fn set_fingerprinted(&mut self, release: &ReleaseId, is_fingerprinted: bool) -> bool {
        let has_changed = if is_fingerprinted {
            self.to_compare.insert(release.clone())
        } else {
            self.to_compare.remove(release)
        };
        has_changed && self.fingerprint_kinds()
    }

    /// Keeps fingerprints of the kinds that releases to compare use, and of no others. Returns whether the objects of a kind have
    /// to be listed again.
    pub fn fingerprint_kinds(&mut self) -> bool {
        let used = self.to_compare.iter().filter_map(|release| self.releases.get(release)).flatten();
        let used: BTreeSet<SharedKind> = used.cloned().collect();
        let mut must_list = false;
        for (kind, states) in &mut self.kinds {
            match (&states.fingerprinted, used.contains(kind)) {
                (Fingerprinted::No, true) => {
                    states.fingerprinted = Fingerprinted::Listing;
                    self.to_list_again.insert(kind.clone());
                    must_list = true;
                }
                (Fingerprinted::Listing | Fingerprinted::Listed(_), false) => {
                    states.fingerprinted = Fingerprinted::No;
                }
                (Fingerprinted::No, false) | (Fingerprinted::Listing | Fingerprinted::Listed(_), true) => {}
            }
        }
        must_list
    }

    /// Returns whether the fingerprints of a kind's objects are needed.
    pub fn is_fingerprinted(&self, kind: &ObjectKind) -> bool {
        self.kinds.get(kind).is_some_and(|states| !matches!(states.fingerprinted, Fingerprinted::No))
    }

    /// Takes in the fingerprints of all objects of a kind, after their states. Releases of objects that are not shown any more
    /// are notified anyway.
    pub(super) fn listed_fingerprints(
        &mut self,
        kind: &ObjectKind,
        fingerprints: Fingerprints,
    ) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        let changed = match &states.fingerprinted {
            Fingerprinted::No => return Vec::new(),
            // All releases wait for them.
            Fingerprinted::Listing => vec![None],
            Fingerprinted::Listed(before) => {
                let is_changed =
                    |(key, fingerprint): &(&ObjectKey, &u64)| before.get(*key) != Some(*fingerprint);
                let keys = fingerprints.iter().filter(is_changed).map(|(key, _)| key);
                keys.map(|key| states.objects.get(key)?.release.clone()).collect()
            }
        };
        states.fingerprinted = Fingerprinted::Listed(compact(fingerprints));
        self.affected(kind, changed).into_iter().filter(|one| self.to_compare.contains(one)).collect()
    }

    /// Returns the releases to compare that an object of a kind may belong to. `None` means that the object does not name one.
    pub(super) fn releases_to_compare(
        &self,
        kind: &ObjectKind,
        release: Option<&ReleaseId>,
    ) -> Vec<ReleaseId> {
        let is_affected = |candidate: &&ReleaseId| {
            release.is_none_or(|release| release == *candidate)
                && self.releases.get(*candidate).is_some_and(|kinds| uses(kinds, kind))
        };
        self.to_compare.iter().filter(is_affected).cloned().collect()
    }

    /// Returns the fingerprints of objects, in their order. `None` if some of them are not listed yet.
    pub fn fingerprints(&self, objects: &[ObjectRecord]) -> Option<Vec<Fingerprint>> {
        objects.iter().map(|object| self.fingerprint(object)).collect()
    }

    fn fingerprint(&self, object: &ObjectRecord) -> Option<Fingerprint> {
        let kind = ObjectKind::new(&object.api_version, &object.kind);
        let Some(states) = self.kinds.get(&kind) else {
            // Too many kinds are in use to watch this one, unless the release has not set its kinds yet.
            return self.users.contains_key(&kind).then_some(Fingerprint::Unwatched);
        };
        match (&states.progress, &states.fingerprinted) {
            (Progress::Failed | Progress::NotServed, _) => Some(Fingerprint::Unwatched),
            (Progress::Listed, Fingerprinted::Listed(fingerprints)) => {
                match fingerprints.get(&object_key(&object.namespace, &object.name)) {
                    Some(fingerprint) => Some(Fingerprint::Seen(*fingerprint)),
                    // It may have been left out.
                    None => (!states.is_outdated).then_some(Fingerprint::Missing),
                }
            }
            (Progress::Waiting | Progress::Listed, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chandler_core::{
        health::ObjectState,
        target::{Target, TargetTls},
    };
    use jiff::Timestamp;

    use super::*;
    use crate::health::{
        object::ObjectHead,
        source::{Position, Source},
        states::{Listed, ReadObject},
    };

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn release(name: &str) -> ReleaseId {
        ReleaseId::new("shop", name)
    }

    fn config_maps() -> ObjectKind {
        ObjectKind::new("v1", "ConfigMap")
    }

    fn head(name: &str, of: Option<&str>) -> ObjectHead {
        ObjectHead { key: object_key("shop", name), release: of.map(release), version: String::new() }
    }

    fn source() -> Source {
        let target = Target {
            cluster: chandler_core::identity::ClusterKey::new("fleet", "blue"),
            server: "https://blue".to_owned(),
            tls: TargetTls::default(),
            auth: None,
            proxy: None,
            request_timeout: std::time::Duration::from_secs(10),
            boundary: chandler_core::tenancy::Boundary::default(),
        };
        Source::new(&target, "app=x")
    }

    /// Takes in an event with a ConfigMap. Its state is always the same.
    fn changed(states: &mut States, head: ObjectHead, fingerprint: u64) -> Vec<ReleaseId> {
        let fingerprint = states.is_fingerprinted(&config_maps()).then_some(fingerprint);
        let object = ReadObject { head, state: ObjectState::Healthy, checks_version: 0, fingerprint };
        states.changed(&config_maps(), object, false, NOW)
    }

    /// Takes in a list that has begun before, with ConfigMaps of releases with the same names.
    fn end_list(states: &mut States, mut listed: Listed, numbers: &[(&str, u64)]) -> Vec<ReleaseId> {
        for (name, number) in numbers {
            let key = object_key("shop", name);
            if let Some(fingerprints) = &mut listed.fingerprints {
                fingerprints.insert(key.clone(), *number);
            }
            listed.objects.insert(key, (Some(release(name)), ObjectState::Healthy));
        }
        let position = Position { source: Arc::new(source()), version: "1".to_owned() };
        states.listed(&config_maps(), listed, position, NOW)
    }

    fn list(states: &mut States, numbers: &[(&str, u64)]) -> Vec<ReleaseId> {
        let listed = states.begin_list(&config_maps());
        end_list(states, listed, numbers)
    }

    /// Whether the watch can be continued without a list.
    fn continues(states: &States) -> bool {
        states.version(&config_maps(), &source()).is_some()
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

    fn use_config_maps(states: &mut States, name: &str) {
        states.set_kinds(&release(name), BTreeSet::from([("v1".to_owned(), "ConfigMap".to_owned())]));
    }

    /// The listed ConfigMaps of the releases `web` and `db`, which have no fingerprints.
    fn without_fingerprints() -> States {
        let mut states = States::default();
        for name in ["web", "db"] {
            use_config_maps(&mut states, name);
        }
        list(&mut states, &[("web", 1), ("db", 1)]);
        states.watches();
        assert!(!states.is_fingerprinted(&config_maps()) && continues(&states));
        states
    }

    /// The same, but `web` has fingerprints.
    fn fingerprinted() -> States {
        let mut states = without_fingerprints();
        assert!(states.set_fingerprinted(&release("web"), true));
        assert_eq!(states.watches().1.len(), 1, "its objects have to be listed again");
        assert!(!states.set_fingerprinted(&release("web"), true) && !states.must_list_again(), "once");
        assert_eq!(seen(&states, "web"), None, "they are not listed yet");
        assert_eq!(list(&mut states, &[("web", 1), ("db", 1)]), [release("web")]);
        assert!(continues(&states));
        states
    }

    #[test]
    fn changes_of_a_release_with_fingerprints_notify_it() {
        let mut states = fingerprinted();
        let object = |name: &str| head(name, Some(name));
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(1)));
        assert_eq!(changed(&mut states, object("web"), 1), []);
        assert_eq!(changed(&mut states, object("web"), 2), [release("web")]);
        assert_eq!(changed(&mut states, object("db"), 2), [], "it has no fingerprints");
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(2)));
        assert!(
            changed(&mut states, head("other", None), 1).contains(&release("web")),
            "it may be its object"
        );
        assert_eq!(changed(&mut states, head("other", None), 2), [release("web")]);
        let again = [("web", 2), ("db", 9)];
        list(&mut states, &again);
        assert_eq!(list(&mut states, &again), []);
        assert_eq!(list(&mut states, &[("web", 3), ("db", 10)]), [release("web")]);
    }

    #[test]
    fn an_object_that_is_not_shown_is_missing() {
        let mut states = fingerprinted();
        assert_eq!(states.deleted(&config_maps(), &head("web", Some("web")), NOW), [release("web")]);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Missing));
        changed(&mut states, head("web", Some("web")), 5);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(5)));
        assert_eq!(list(&mut states, &[("db", 1)]), [release("web")]);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Missing));
        list(&mut states, &[("web", 6), ("db", 1)]);
        changed(&mut states, head("web", Some("unknown")), 7);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Missing), "it belongs to another release");
    }

    #[test]
    fn an_object_that_was_left_out_is_not_missing() {
        let mut states = fingerprinted();
        states.set_fingerprinted(&release("shop"), true);
        changed(&mut states, head("shop", Some("shop")), 7);
        assert_eq!(seen(&states, "shop"), Some(Fingerprint::Missing), "its release is not known");
        use_config_maps(&mut states, "shop");
        assert_eq!(seen(&states, "shop"), None, "it was left out");
        assert!(!continues(&states));
        let notified = list(&mut states, &[("web", 1), ("db", 1), ("shop", 7)]);
        assert!(notified.contains(&release("shop")), "{notified:?}");
        assert_eq!(seen(&states, "shop"), Some(Fingerprint::Seen(7)));
    }

    #[test]
    fn a_list_that_began_without_fingerprints_is_repeated() {
        let mut states = without_fingerprints();
        let begun = states.begin_list(&config_maps());
        states.set_fingerprinted(&release("web"), true);
        end_list(&mut states, begun, &[("web", 1), ("db", 1)]);
        assert_eq!(seen(&states, "web"), None);
        assert!(states.is_outdated(&config_maps()) && !continues(&states));
        list(&mut states, &[("web", 1), ("db", 1)]);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(1)));
        assert!(!states.is_outdated(&config_maps()) && continues(&states));
    }

    #[test]
    fn a_release_with_fingerprints_can_set_its_kinds_later() {
        let mut states = States::default();
        assert!(!states.set_fingerprinted(&release("web"), true));
        use_config_maps(&mut states, "web");
        list(&mut states, &[("web", 1)]);
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(1)));
    }

    #[test]
    fn what_is_not_served_has_fingerprints_once_it_is() {
        let mut states = fingerprinted();
        states.not_served(&config_maps());
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Unwatched));
        assert!(list(&mut states, &[("web", 2)]).contains(&release("web")));
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Seen(2)));
    }

    #[test]
    fn nothing_is_kept_for_releases_without_fingerprints() {
        for forgets in [true, false] {
            let mut states = fingerprinted();
            if forgets {
                states.forget(&release("web"));
            } else {
                assert!(!states.set_fingerprinted(&release("web"), false));
            }
            assert!(!states.is_fingerprinted(&config_maps()));
            assert_eq!(seen(&states, "db"), None);
            assert_eq!(changed(&mut states, head("db", Some("db")), 7), []);
        }
    }

    #[test]
    fn the_fingerprints_of_a_forgotten_release_are_not_kept() {
        let mut states = fingerprinted();
        states.set_fingerprinted(&release("db"), true);
        states.forget(&release("web"));
        assert_eq!(seen(&states, "web"), Some(Fingerprint::Missing));
        assert_eq!(seen(&states, "db"), Some(Fingerprint::Seen(1)));
    }
}
