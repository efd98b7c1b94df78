//! To which Sync an object belongs. A label names it; if two Syncs contain the same object, the older Sync wins.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::ObjectId;
use crate::naming::label_value;

/// A Sync that may own objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub created: Option<Timestamp>,
    pub namespace: String,
    pub name: String,
    /// The objects that it wants: its inventory without those that are no longer in its folder.
    pub objects: BTreeSet<ObjectId>,
}

impl Claim {
    fn age(&self) -> (Option<Timestamp>, &str, &str) {
        (self.created, &self.namespace, &self.name)
    }

    pub fn label(&self) -> String {
        owner_label(&self.namespace, &self.name)
    }
}

/// The Syncs that a manager watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    pub syncs: Vec<Claim>,
    /// The only namespace that the manager watches. `None` means all namespaces.
    pub namespace: Option<String>,
    /// Whether the manager watches only Syncs with some label.
    pub filtered: bool,
}

impl Claims {
    /// Limits what a Sync wants to what its directory contains now. Its recorded inventory still has
    /// what was in it at an earlier revision.
    pub fn limit(&mut self, label: &str, contained: &BTreeSet<ObjectId>) {
        for claim in self.syncs.iter_mut().filter(|claim| claim.label() == label) {
            claim.objects.retain(|id| contained.contains(id));
        }
    }

    /// Returns whether the Sync with this label wants an object.
    pub fn wants(&self, label: &str, object: &ObjectId) -> bool {
        self.syncs.iter().any(|claim| claim.label() == label && claim.objects.contains(object))
    }

    /// Returns the Sync older than `own` that wants an object now, and did not before.
    pub fn newly_taken(&self, object: &ObjectId, own: &Claim, before: &Self) -> Option<String> {
        let mut older = self.syncs.iter().filter(|claim| claim.age() < own.age());
        let is_new = |claim: &&Claim| claim.objects.contains(object) && !before.wants(&claim.label(), object);
        older.find(is_new).map(|claim| format!("{}/{}", claim.namespace, claim.name))
    }

    /// Returns whether a Sync with this label would be among the claims if it existed.
    fn would_contain(&self, label: &str) -> bool {
        let watched =
            |namespace: &String| label.strip_prefix(&**namespace).is_some_and(|rest| rest.starts_with('.'));
        !self.filtered && self.namespace.as_ref().is_none_or(watched)
    }
}

/// To which Sync an object belongs, from the view of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It belongs to this Sync, or may become its own.
    Ours,
    /// It belongs to another Sync, which is older.
    Taken { by: String },
    /// Its label names a Sync that the manager does not watch, so it may exist.
    Unknown { label: String },
}

/// Returns the value of the label of the objects of a Sync. A namespace contains no dot, so the value is unambiguous.
pub fn owner_label(namespace: &str, name: &str) -> String {
    label_value(&format!("{namespace}.{name}"))
}

/// Returns to which Sync an object with this label belongs. The label of a Sync that does not exist any more, or that does
/// not want the object any more, has no effect.
pub fn ownership(object: &ObjectId, label: Option<&str>, own: &Claim, all: &Claims) -> Ownership {
    let Some(label) = label.filter(|label| *label != own.label()) else { return Ownership::Ours };
    match all.syncs.iter().find(|claim| claim.label() == label) {
        Some(owner) if owner.objects.contains(object) && owner.age() < own.age() => {
            Ownership::Taken { by: format!("{}/{}", owner.namespace, owner.name) }
        }
        None if !all.would_contain(label) => Ownership::Unknown { label: label.to_owned() },
        _ => Ownership::Ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(second: i64, name: &str, objects: &[&ObjectId]) -> Claim {
        Claim {
            created: Timestamp::from_second(second).ok(),
            namespace: "fleet".to_owned(),
            name: name.to_owned(),
            objects: objects.iter().map(|id| (*id).clone()).collect(),
        }
    }

    #[test]
    fn the_older_sync_wins_while_it_wants_the_object() {
        let id = ObjectId::new("v1", "ConfigMap", "fleet", "a");
        let own = claim(5, "own", &[&id]);
        let taken = Ownership::Taken { by: "fleet/older".to_owned() };
        let rows = [
            ("without a label", None, claim(1, "older", &[&id]), Ownership::Ours),
            ("its own label", Some("fleet.own"), claim(1, "older", &[&id]), Ownership::Ours),
            ("an older Sync", Some("fleet.older"), claim(1, "older", &[&id]), taken.clone()),
            (
                "an older Sync without the object",
                Some("fleet.older"),
                claim(1, "older", &[]),
                Ownership::Ours,
            ),
            ("a newer Sync", Some("fleet.newer"), claim(9, "newer", &[&id]), Ownership::Ours),
            ("the same age: by name", Some("fleet.older"), claim(5, "older", &[&id]), taken),
            ("the same age: by name", Some("fleet.young"), claim(5, "young", &[&id]), Ownership::Ours),
            ("a deleted Sync", Some("fleet.gone"), claim(1, "older", &[&id]), Ownership::Ours),
        ];
        for (what, label, other, expected) in rows {
            let all = Claims { syncs: vec![own.clone(), other], ..Claims::default() };
            assert_eq!(ownership(&id, label, &own, &all), expected, "{what}");
        }
    }

    #[test]
    fn an_older_sync_keeps_only_what_its_directory_contains() {
        let [id, moved] = ["a", "b"].map(|name| ObjectId::new("v1", "ConfigMap", "fleet", name));
        let own = claim(5, "own", &[&id, &moved]);
        let syncs = vec![own.clone(), claim(1, "older", &[&id, &moved])];
        let mut all = Claims { syncs, ..Claims::default() };
        all.limit("fleet.older", &BTreeSet::from([id.clone()]));
        assert_eq!(ownership(&moved, Some("fleet.older"), &own, &all), Ownership::Ours);
        assert_ne!(ownership(&id, Some("fleet.older"), &own, &all), Ownership::Ours);
        assert!(all.wants("fleet.own", &moved) && !all.wants("fleet.older", &moved));
        assert!(!all.wants("fleet.gone", &id));
    }

    #[test]
    fn an_older_sync_that_begins_to_want_an_object_has_precedence() {
        let id = ObjectId::new("v1", "ConfigMap", "fleet", "a");
        let own = claim(5, "own", &[&id]);
        let claims = |other| Claims { syncs: vec![own.clone(), other], ..Claims::default() };
        let rows = [
            ("it did not exist", claims(own.clone()), claim(1, "older", &[&id]), Some("fleet/older")),
            ("it wants more", claims(claim(1, "older", &[])), claim(1, "older", &[&id]), Some("fleet/older")),
            ("as before", claims(claim(1, "older", &[&id])), claim(1, "older", &[&id]), None),
            ("a newer Sync", claims(claim(9, "newer", &[])), claim(9, "newer", &[&id]), None),
            ("another object", claims(claim(1, "older", &[])), claim(1, "older", &[]), None),
        ];
        for (what, before, other, expected) in rows {
            let taken = claims(other).newly_taken(&id, &own, &before);
            assert_eq!(taken.as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn a_sync_that_the_manager_does_not_watch_may_exist() {
        let id = ObjectId::new("v1", "ConfigMap", "fleet", "a");
        let own = claim(5, "own", &[&id]);
        let rows = [
            (None, false, "team.base", true),
            (Some("fleet"), false, "fleet.gone", true),
            (Some("fleet"), false, "team.base", false),
            (Some("fleet"), false, "fleet-2.base", false),
            (None, true, "fleet.gone", false),
        ];
        for (namespace, filtered, label, ours) in rows {
            let namespace = namespace.map(str::to_owned);
            let all = Claims { syncs: vec![own.clone()], namespace, filtered };
            let unknown = Ownership::Unknown { label: label.to_owned() };
            let expected = if ours { Ownership::Ours } else { unknown };
            assert_eq!(ownership(&id, Some(label), &own, &all), expected, "{all:?} {label}");
        }
    }

    #[test]
    fn labels_are_unambiguous_and_short() {
        assert_eq!(owner_label("fleet", "base"), "fleet.base");
        assert_ne!(owner_label("a", "b.c"), owner_label("b", "a.c"));
        let [one, other] = ["x", "y"].map(|end| owner_label("fleet", &format!("{}{end}", "n".repeat(200))));
        assert!(one.len() <= 63 && one != other);
    }
}
