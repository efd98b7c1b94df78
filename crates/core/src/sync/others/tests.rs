//! What is known about the directories of other Syncs.

use serde_json::{Value, json};

use super::*;

fn document(object: Value) -> Document {
    Document { file: "a.yaml".to_owned(), line: 1, object }
}

fn sync(name: &str, fields: &Value) -> SyncObject {
    let mut sync = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
        "metadata": {"name": name, "namespace": "fleet", "generation": 1},
        "spec": {"source": {"sourceRef": {"name": "git"}, "path": name}, "serviceAccountName": "deployer"},
    });
    for (pointer, value) in fields.as_object().unwrap() {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        sync.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    serde_json::from_value(sync).unwrap()
}

fn ready(status: &str, reason: &str, message: &str, held: &Value) -> Value {
    json!({"/status": {"held": held, "conditions": [{
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}})
}

fn held(reason: &str, by: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "fleet", "name": "a", "reason": reason, "sync": by}])
}

#[test]
fn contents_are_the_ids_of_all_objects_and_the_syncs() {
    let served = |kind: &GroupVersionKind| match &*kind.kind {
        "ConfigMap" | "Sync" => Some(Scope::Namespaced),
        "Namespace" => Some(Scope::Cluster),
        _ => None,
    };
    let map = |namespace: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}});
    let documents = [
        map(Value::Null),
        map(json!("team")),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        json!({"apiVersion": "x.example/v1", "kind": "Unknown", "metadata": {"name": "u"}}),
        serde_json::to_value(sync("child", &json!({}))).unwrap(),
        json!({"apiVersion": "flux/v1", "kind": "Sync", "metadata": {"name": "f"}, "spec": {"source": {}}}),
    ];
    let found = contents(&documents.map(document), "fleet", served);
    let ids: Vec<_> = found.objects.iter().map(ObjectId::to_string).collect();
    let expected = [
        "ConfigMap fleet/a",
        "ConfigMap team/a",
        "Namespace n",
        "Sync fleet/child",
        "Sync fleet/f",
        "Unknown u",
        "Unknown fleet/u",
    ];
    assert_eq!(ids.iter().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    let names: Vec<_> = found.syncs.iter().map(|sync| (&*sync.name, &*sync.directory.path)).collect();
    assert_eq!(names, [("child", "child")]);
}

#[test]
fn directories_have_the_same_source_wherever_it_is() {
    let directory = |namespace: &str, name: &str, scope: &str| {
        let source = serde_json::from_value(json!({"sourceRef": {"name": name, "scope": scope}})).unwrap();
        Directory::new(namespace, &source)
    };
    let rows = [
        (directory("fleet", "git", "Namespace"), true),
        (directory("fleet", "other", "Namespace"), false),
        (directory("team", "git", "Namespace"), false),
        (directory("team", "git", "Platform"), false),
    ];
    let own = directory("fleet", "git", "Namespace");
    for (other, same) in rows {
        assert_eq!(own.has_source_of(&other, "platform"), same, "{other:?}");
    }
    let platform = directory("team", "git", "Platform");
    assert!(platform.has_source_of(&directory("fleet", "git", "Platform"), "platform"));
    assert!(platform.has_source_of(&directory("platform", "git", "Namespace"), "platform"));
}

#[test]
fn a_broken_directory_may_contain_what_it_names() {
    let rows: [(&[(&str, &str)], bool); 10] = [
        (&[], false),
        (&[("a.yaml", "kind: [broken")], false),
        (&[("a.yaml", "name: moved\nkind: [broken")], true),
        (&[("README.md", "moved")], false),
        (&[("a.yaml", "name: \"\\x6doved\"")], true),
        (&[("kustomization.yaml", "resources: [../base]")], true),
        (&[("kustomization.yaml", ""), ("kustomization.yml", "")], true),
        (&[("Kustomization", "resources: [../base]")], true),
        (&[("a.yaml", "kind: Sync\nspec: [broken")], true),
        (&[("sub/kustomization.yaml", "resources: []")], false),
    ];
    for (files, expected) in rows {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), *text)).collect();
        assert_eq!(may_contain(&files, "moved"), expected, "{files:?}");
    }
}

#[test]
fn a_directory_without_manifests_is_emptied_if_it_was_applied() {
    let applied = |path: &str| {
        json!({"/status": {"lastApplied": {
            "revision": "r1", "digest": "d", "sourceRef": {"name": "git"}, "path": path,
            "at": "2026-01-01T00:00:00Z",
        }}})
    };
    // What, the status, the files, whether it is emptied.
    let rows: [(&str, Value, &[&str], bool); 6] = [
        ("missing", applied("own/"), &[], true),
        ("only a text", applied("own"), &["README.md"], true),
        ("a manifest", applied("own"), &["README.md", "sub/a.yaml"], false),
        ("a kustomization", applied("own"), &["Kustomization"], false),
        ("never applied", json!({}), &[], false),
        ("another path was applied", applied("other"), &[], false),
    ];
    for (what, status, files, expected) in rows {
        let files = files.iter().map(|file| ((*file).to_owned(), ())).collect();
        assert_eq!(is_emptied(&sync("own", &status), &files), expected, "{what}");
    }
}

#[test]
fn a_hand_over_is_noticed_once_the_other_sync_is_applied() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "fleet", "name": "a"});
    let receiver = |ready_status: &str, inventory: Value, held: &Value| {
        let mut fields = ready(ready_status, "Applied", "", held);
        fields["/status"]["inventory"] = inventory;
        sync("own", &fields).status.unwrap()
    };
    let (none, listed) = (json!([]), json!([object]));
    let rows = [
        ("applied", receiver("True", listed.clone(), &none), true),
        ("it fails", receiver("False", listed.clone(), &none), false),
        ("without the object", receiver("True", json!([]), &none), false),
        ("it holds the object, too", receiver("True", listed, &held("PruneDisabled", "")), false),
    ];
    let holding =
        |reason: &str| sync("giver", &ready("True", "", "", &held(reason, "fleet/own"))).status.unwrap().held;
    for (what, status, expected) in rows {
        assert_eq!(is_handed_over(&holding("WantedBySync"), "fleet/own", &status), expected, "{what}");
        assert!(!is_handed_over(&holding("SyncNotRendered"), "fleet/own", &status), "{what}");
        assert!(!is_handed_over(&holding("WantedBySync"), "fleet/other", &status), "{what}");
    }
}

#[test]
fn a_sync_reacts_to_others_that_hold_its_objects_or_that_it_holds_for() {
    let none = json!([]);
    let changed = |held: &Value| sync("changed", &ready("True", "Applied", "", held));
    let kept = changed(&held("WantedBySync", "fleet/own"));
    let own = |status: &str, reason: &str, message: &str, held: &Value| {
        sync("own", &ready(status, reason, message, held))
    };
    // What, the Sync, the one that has changed, whether it was deleted, reaction.
    let rows = [
        ("unrelated", own("True", "Applied", "", &none), changed(&none), false, Reaction::None),
        (
            "it holds for the other",
            own("True", "Applied", "", &held("WantedBySync", "fleet/changed")),
            changed(&none),
            false,
            Reaction::Apply,
        ),
        (
            "the other could not be rendered",
            own("True", "Applied", "", &held("SyncNotRendered", "fleet/changed")),
            changed(&none),
            false,
            Reaction::Apply,
        ),
        (
            "a conflict ends",
            own("False", "Conflict", "ConfigMap fleet/a", &none),
            kept.clone(),
            false,
            Reaction::Apply,
        ),
        ("not reported yet", own("False", "Forbidden", "why", &none), kept.clone(), false, Reaction::Apply),
        (
            "reported",
            own("False", "Forbidden", "why; Sync fleet/changed keeps ConfigMap fleet/a", &none),
            kept.clone(),
            false,
            Reaction::Report,
        ),
        (
            "held for a Sync that cannot be rendered",
            own("False", "InvalidPackage", "why", &none),
            changed(&held("SyncNotRendered", "fleet/own")),
            false,
            Reaction::None,
        ),
        ("deleted", own("False", "Conflict", "why", &none), changed(&none), true, Reaction::Apply),
        ("deleted", own("True", "Applied", "", &none), changed(&none), true, Reaction::None),
    ];
    for (what, own, changed, is_deleted, expected) in rows {
        let status = changed.status.as_ref().unwrap();
        let changed = ChangedSync { name: "fleet/changed", status, is_deleted };
        assert_eq!(reaction("fleet/own", own.status.as_ref().unwrap(), changed), expected, "{what}");
    }
}

#[test]
fn rivals_are_the_syncs_that_have_applied_a_written_object() {
    let status = |(ready, reason, message): (&str, &str, &str), name: &str, held: &str| -> SyncStatus {
        let map =
            |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "fleet", "name": name});
        let mut kept = map(held);
        kept["reason"] = json!("ProtectedPlacement");
        let condition = json!({
            "type": "Ready", "status": ready, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "inventory": [map(name)], "held": [kept], "conditions": [condition],
        }))
        .unwrap()
    };
    let applied = ("True", "Applied", "");
    let conflict = ("False", "Conflict", "ConfigMap fleet/shared belongs to Sync fleet/older");
    let rows = [
        ("applied", status(applied, "shared", "none"), true),
        ("it is being applied", status(("Unknown", "Applying", ""), "shared", "none"), true),
        ("it has reported the conflict", status(conflict, "shared", "none"), false),
        (
            "it has reported another conflict",
            status(("False", "Conflict", "Secret a"), "shared", "none"),
            true,
        ),
        ("it fails otherwise", status(("False", "ClusterPaused", ""), "shared", "none"), true),
        ("another object", status(applied, "other", "none"), false),
        ("it only holds it", status(applied, "shared", "shared"), false),
    ];
    let written = BTreeSet::from([ObjectId::new("v1", "ConfigMap", "fleet", "shared")]);
    for (what, status, expected) in rows {
        assert_eq!(is_rival(&status, &written), expected, "{what}");
    }
}

#[test]
fn messages_name_the_sync_and_its_state() {
    let suspended = sync("own", &ready("False", "Suspended", "", &json!([])));
    assert_eq!(state_of(&suspended).as_deref(), Some("Suspended"));
    assert_eq!(state_of(&sync("own", &ready("True", "Applied", "", &json!([])))), None);
    let other = |want| OtherSync { sync: "fleet/own".to_owned(), want, state: state_of(&suspended) };
    assert!(
        other(Want::Own).message().starts_with("the directory of Sync fleet/own (Suspended) contains it")
    );
    assert!(other(Want::Unknown).message().contains("it is not known whether"));
    let id = |name: &str| ObjectId::new("v1", "ConfigMap", "fleet", name);
    let kept = |count: usize| -> Vec<_> {
        (0..count).map(|number| (id(&format!("m{number}")), "fleet/old".to_owned())).collect()
    };
    assert_eq!(kept_message(&kept(0)), None);
    let one = kept_message(&kept(1)).unwrap();
    assert_eq!(one, "Sync fleet/old keeps ConfigMap fleet/m0 until this Sync takes it over");
    assert!(kept_message(&kept(5)).unwrap().contains("and others keep 2 more objects"));
}

#[test]
fn a_stopped_sync_writes_nothing() {
    let rows = [
        (json!({}), false),
        (json!({"/spec/suspend": true}), true),
        (json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}), true),
        (json!({"/metadata/annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}), true),
    ];
    for (fields, expected) in rows {
        assert_eq!(is_stopped(&sync("own", &fields)), expected, "{fields}");
    }
}
