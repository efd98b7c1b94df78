//! Tells objects from changed ones.

use std::collections::BTreeMap;

use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::json;

/// What tells an object from a changed one: its uid, and its generation or resource version.
pub type Fingerprints = BTreeMap<String, (String, String)>;

pub fn fingerprints(
    kind: &str,
    objects: &[DynamicObject],
    version: impl Fn(&DynamicObject) -> String,
) -> Fingerprints {
    let name = |object: &DynamicObject| {
        format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any())
    };
    objects.iter().map(|object| (name(object), (object.uid().unwrap(), version(object)))).collect()
}

/// Returns the names of the objects that were created, changed or deleted.
pub fn changes(before: &Fingerprints, after: &Fingerprints) -> Vec<String> {
    let changed = before.iter().filter(|(name, object)| after.get(*name) != Some(*object));
    let created = after.keys().filter(|name| !before.contains_key(*name));
    changed.map(|(name, _)| name).chain(created).cloned().collect()
}

/// Returns the record that Helm has of a revision.
fn record(revision: u32, version: &str) -> DynamicObject {
    let (name, uid) = (format!("sh.helm.release.v1.kept.v{revision}"), format!("uid-{revision}"));
    let metadata = json!({"namespace": "team", "name": name, "uid": uid, "resourceVersion": version});
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap()
}

#[test]
fn one_more_revision_and_changed_objects_are_noticed() {
    let of = |records: &[DynamicObject]| {
        fingerprints("Secret", records, |record| record.resource_version().unwrap())
    };
    let before = of(&[record(1, "7")]);
    let (first, second) =
        ("Secret team/sh.helm.release.v1.kept.v1", "Secret team/sh.helm.release.v1.kept.v2");
    let rows = [
        ("nothing changes", vec![record(1, "7")], vec![]),
        ("one more revision", vec![record(1, "7"), record(2, "8")], vec![second]),
        ("a revision that is superseded", vec![record(1, "8"), record(2, "9")], vec![first, second]),
        ("a record that was written again", vec![record(1, "8")], vec![first]),
        ("no record any more", vec![], vec![first]),
    ];
    for (case, records, expected) in rows {
        assert_eq!(changes(&before, &of(&records)), expected, "{case}");
    }
}
