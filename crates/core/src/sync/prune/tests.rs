//! Every row of the prune guard.

use chandler_api::extensions::{ConfirmedObject, PruneConfirmation};
use serde_json::{Value, json};

use super::*;
use crate::sync::Want;

const CAPI: &str = "cluster.x-k8s.io/v1beta2";

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> SyncedObject {
    SyncedObject {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: "uid".to_owned(),
    }
}

fn map(number: usize) -> SyncedObject {
    object("v1", "ConfigMap", "fleet", &format!("map-{number:03}"))
}

fn maps(count: usize) -> Vec<SyncedObject> {
    (0..count).map(map).collect()
}

fn cluster(name: &str) -> SyncedObject {
    object(CAPI, "Cluster", "fleet", name)
}

/// A Sync with pruning whose folder contains the objects of its inventory without the first `removed`.
struct Row {
    inventory: Vec<SyncedObject>,
    rendered: Vec<SyncedObject>,
    enabled: bool,
    confirm: Option<(&'static str, Vec<SyncedObject>)>,
    source_changed: bool,
    revision_applied_before: bool,
    held: Vec<HeldObject>,
    delete_placements: bool,
    wanted: Vec<(SyncedObject, Want)>,
}

impl Row {
    fn removed(inventory: Vec<SyncedObject>, removed: usize) -> Self {
        let rendered = inventory[removed..].to_vec();
        Self {
            inventory,
            rendered,
            enabled: true,
            confirm: None,
            source_changed: false,
            revision_applied_before: false,
            held: Vec::new(),
            delete_placements: false,
            wanted: Vec::new(),
        }
    }

    /// A folder with one ConfigMap, without the given objects, which were in it before.
    fn without(objects: Vec<SyncedObject>) -> Self {
        let removed = objects.len();
        Self::removed([objects, vec![map(0)]].concat(), removed)
    }

    fn confirmed(self, revision: &'static str, objects: Vec<SyncedObject>) -> Self {
        Self { confirm: Some((revision, objects)), ..self }
    }

    fn run(&self, decide: fn(&PruneInput<'_>) -> PrunePlan) -> PrunePlan {
        let confirmed = |object: &SyncedObject| ConfirmedObject {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        };
        let confirm = self.confirm.as_ref().map(|(revision, objects)| PruneConfirmation {
            revision: (*revision).to_owned(),
            objects: objects.iter().map(confirmed).collect(),
        });
        let prune = Prune { enabled: self.enabled, delete_placements: self.delete_placements, confirm };
        let rendered: BTreeSet<_> = self.rendered.iter().map(ObjectId::from).collect();
        let own = PruneInput::own_objects(&sync(), "platform");
        let other = |want| OtherSync { sync: "fleet/other".to_owned(), want, state: None };
        let wanted = self.wanted.iter().map(|(object, want)| (ObjectId::from(object), other(*want)));
        let wanted: BTreeMap<_, _> = wanted.collect();
        decide(&PruneInput {
            prune: &prune,
            revision: "r2",
            inventory: &self.inventory,
            rendered: &rendered,
            own: &own,
            source_changed: self.source_changed,
            revision_applied_before: self.revision_applied_before,
            held: &self.held,
            wanted: &wanted,
        })
    }

    /// Returns the number of deleted objects, and the reasons of the others.
    fn outcome(&self) -> (usize, Vec<HeldReason>) {
        let plan = self.run(plan_prune);
        (plan.delete.len(), plan.held.iter().map(|held| held.reason).collect())
    }
}

fn sync() -> SyncObject {
    serde_json::from_value(json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
        "metadata": {"name": "base", "namespace": "fleet"},
        "spec": {
            "source": {"sourceRef": {"name": "repository", "scope": "Platform"}, "path": "clusters"},
            "serviceAccountName": "deployer",
        },
    }))
    .unwrap()
}

#[test]
fn nothing_is_deleted_unless_pruning_is_enabled() {
    let row = Row { enabled: false, ..Row::without(vec![map(1), cluster("blue")]) };
    assert_eq!(row.outcome(), (0, vec![HeldReason::PruneDisabled; 2]));
    let confirmed = row.confirmed("r2", vec![map(1)]);
    assert_eq!(confirmed.outcome().0, 0);
}

#[test]
fn a_few_objects_are_deleted() {
    assert_eq!(Row::removed(maps(5), 0).outcome(), (0, Vec::new()));
    assert_eq!(Row::removed(maps(5), 2).outcome(), (2, Vec::new()));
}

#[test]
fn more_than_ten_objects_or_20_percent_from_ten_objects_on_are_held() {
    let rows = [
        // Inventory, removed, deleted.
        (9, 8, 8),
        (10, 2, 2),
        (10, 3, 0),
        (14, 2, 2),
        (14, 3, 0),
        (50, 10, 10),
        (50, 11, 0),
        (100, 10, 10),
        (100, 11, 0),
        (1000, 10, 10),
        (1000, 11, 0),
        (1000, 999, 0),
    ];
    for (total, removed, deleted) in rows {
        let (found, held) = Row::removed(maps(total), removed).outcome();
        assert_eq!((found, held.len()), (deleted, removed - deleted), "{removed} of {total}");
        assert!(held.iter().all(|reason| *reason == HeldReason::TooManyDeletions));
    }
}

#[test]
fn protected_kinds_are_deleted_only_if_they_are_confirmed_for_this_revision() {
    let rows = [
        (cluster("blue"), true),
        (object("cluster.x-k8s.io/v1beta1", "MachineDeployment", "fleet", "a"), true),
        (object("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", "fleet", "a"), true),
        (object("addons.cluster.x-k8s.io/v1beta2", "ClusterResourceSet", "fleet", "a"), true),
        (object("v1", "Namespace", "", "team"), true),
        (object("v1", "PersistentVolumeClaim", "fleet", "data"), true),
        (object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.x.example"), true),
        (object("notcluster.x-k8s.io/v1", "Cluster", "fleet", "a"), false),
        (object("fleet.cattle.io/v1alpha1", "Cluster", "fleet", "blue"), false),
        (object("v1", "Secret", "fleet", "a"), false),
        (object("chandler.dev/v1alpha1", "Sync", "fleet", "a"), false),
    ];
    for (one, protected) in rows {
        let expected = if protected { (0, vec![HeldReason::ProtectedKind]) } else { (1, Vec::new()) };
        let row = || Row::without(vec![one.clone()]);
        assert_eq!(row().outcome(), expected, "{one:?}");
        assert_eq!(row().confirmed("r1", vec![one.clone()]).outcome(), expected, "another revision: {one:?}");
        assert_eq!(row().confirmed("r2", vec![map(7)]).outcome(), expected, "another object: {one:?}");
        assert_eq!(row().confirmed("r2", vec![one.clone()]).outcome(), (1, Vec::new()), "{one:?}");
    }
    let namesake = object("fleet.cattle.io/v1alpha1", "Cluster", "fleet", "blue");
    let row = Row::without(vec![cluster("blue")]).confirmed("r2", vec![namesake]);
    assert_eq!(row.outcome(), (0, vec![HeldReason::ProtectedKind]), "the kind of another group");
    let older = object("cluster.x-k8s.io/v1beta1", "Cluster", "fleet", "blue");
    assert_eq!(Row::without(vec![cluster("blue")]).confirmed("r2", vec![older]).outcome().0, 1);
}

#[test]
fn placements_are_deleted_only_if_the_sync_says_so() {
    let chandler = |kind: &str| object("chandler.dev/v1alpha1", kind, "fleet", "a");
    let rows = [
        (object("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy", "fleet", "a"), true),
        (chandler("ExtensionInstance"), true),
        (chandler("Extension"), true),
        (chandler("ExtensionCatalog"), true),
        (chandler("Source"), true),
        (chandler("AddonPolicy"), true),
        (chandler("Sync"), false),
        (object("x.example/v1", "ExtensionInstance", "fleet", "a"), false),
        (map(1), false),
    ];
    for (one, protected) in rows {
        let expected = if protected { (0, vec![HeldReason::ProtectedPlacement]) } else { (1, Vec::new()) };
        let row = || Row::without(vec![one.clone()]);
        assert_eq!(row().outcome(), expected, "{one:?}");
        let deleting = || Row { delete_placements: true, ..row() };
        assert_eq!(deleting().outcome(), (1, Vec::new()), "{one:?}");
        assert_eq!(row().confirmed("r2", vec![one.clone()]).outcome(), (1, Vec::new()), "{one:?}");
        let held = vec![HeldObject::from(&Held::new(one.clone(), HeldReason::ProtectedPlacement))];
        let row = Row { held, ..deleting() };
        assert_eq!(row.outcome(), (1, Vec::new()), "the field applies to what was held: {one:?}");
        // The deletion of the Sync itself.
        assert_eq!(deleting().run(plan_deletion).held, Vec::new(), "{one:?}");
    }
    let many =
        |count: usize| (0..count).map(|n| object("chandler.dev/v1", "Source", "fleet", &n.to_string()));
    let row = Row { delete_placements: true, ..Row::without(many(11).collect()) };
    assert_eq!(row.outcome(), (0, vec![HeldReason::TooManyDeletions; 11]), "the other guards stay");
}

#[test]
fn what_another_sync_wants_is_never_deleted() {
    let kinds = [map(1), cluster("blue"), object("chandler.dev/v1alpha1", "ExtensionInstance", "fleet", "a")];
    for one in kinds {
        // Want, whether the deletion is confirmed, outcome.
        let rows = [
            (Want::Own, false, Some(HeldReason::WantedBySync)),
            (Want::Own, true, Some(HeldReason::WantedBySync)),
            (Want::Foreign, false, Some(HeldReason::WantedBySync)),
            (Want::Foreign, true, None),
            (Want::Unknown, true, None),
        ];
        for (want, confirmed, held) in rows {
            let row = Row { wanted: vec![(one.clone(), want)], ..Row::without(vec![one.clone()]) };
            let row = if confirmed { row.confirmed("r2", vec![one.clone()]) } else { row };
            let expected = (usize::from(held.is_none()), held.into_iter().collect());
            assert_eq!(row.outcome(), expected, "{want:?} {confirmed} {one:?}");
        }
    }
    let unknown =
        |one: SyncedObject| Row { wanted: vec![(one.clone(), Want::Unknown)], ..Row::without(vec![one]) };
    assert_eq!(unknown(map(1)).outcome(), (0, vec![HeldReason::SyncNotRendered]));
    let reason = HeldReason::ProtectedKind;
    assert_eq!(unknown(cluster("blue")).outcome(), (0, vec![reason]), "it would be held anyway");
    let disabled = Row { enabled: false, wanted: vec![(map(1), Want::Own)], ..Row::without(vec![map(1)]) };
    assert_eq!(disabled.outcome(), (0, vec![HeldReason::WantedBySync]));
    // Objects that move are not missing.
    let moved = (0..20).map(|number| (map(number), Want::Own)).collect();
    let row = Row { wanted: moved, ..Row::removed(maps(21), 21) };
    assert_eq!(row.outcome().0, 1, "the last one is deleted");
}

#[test]
fn the_sync_its_source_and_its_account_are_never_deleted() {
    let own = [
        object("chandler.dev/v1alpha1", "Sync", "fleet", "base"),
        object("chandler.dev/v1alpha1", "Source", "platform", "repository"),
        object("v1", "ServiceAccount", "fleet", "deployer"),
        object("v1", "Namespace", "", "fleet"),
        object("v1", "Namespace", "", "platform"),
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "syncs.chandler.dev"),
    ];
    for one in own {
        let row = Row::without(vec![one.clone()]).confirmed("r2", vec![one.clone()]);
        assert_eq!(row.outcome(), (0, vec![HeldReason::OwnObject]), "{one:?}");
    }
    let others = vec![
        object("chandler.dev/v1alpha1", "Sync", "fleet", "other"),
        object("chandler.dev/v1alpha1", "Source", "fleet", "repository"),
        object("v1", "ServiceAccount", "team", "deployer"),
    ];
    let row = Row { delete_placements: true, ..Row::without(others) };
    assert_eq!(row.outcome(), (3, Vec::new()));
}

#[test]
fn another_folder_or_an_earlier_revision_deletes_nothing_that_is_not_confirmed() {
    let rows = [
        (Row { source_changed: true, ..Row::without(vec![map(1)]) }, HeldReason::SourceChanged),
        (
            Row { revision_applied_before: true, ..Row::without(vec![map(1)]) },
            HeldReason::RevisionAppliedBefore,
        ),
    ];
    for (row, reason) in rows {
        assert_eq!(row.outcome(), (0, vec![reason]));
        assert_eq!(row.confirmed("r2", vec![map(1)]).outcome(), (1, Vec::new()));
    }
}

#[test]
fn a_force_push_never_deletes_a_cluster() {
    // Whatever the branch contains now: nothing of before, a part of it, or few objects less.
    for kept in 0..=3 {
        let clusters: Vec<_> = (0..20).map(|number| cluster(&format!("c-{number}"))).collect();
        let inventory = [clusters, maps(5)].concat();
        let rendered = [vec![map(900)], inventory[25 - kept..].to_vec()].concat();
        let row = Row { rendered, ..Row::removed(inventory, 0) };
        let plan = row.run(plan_prune);
        assert!(plan.delete.iter().all(|object| object.kind != "Cluster"), "{kept}");
        assert_eq!(plan.held.iter().filter(|held| held.object.kind == "Cluster").count(), 20);
    }
}

#[test]
fn what_was_held_stays_held_when_the_cause_is_gone() {
    let held = |reason: HeldReason| vec![HeldObject::from(&Held::new(map(1), reason))];
    for reason in HeldReason::ALL {
        let row = Row { held: held(reason), ..Row::without(vec![map(1)]) };
        let expected = if reason.is_sticky() { (0, vec![reason]) } else { (1, Vec::new()) };
        assert_eq!(row.outcome(), expected, "{reason:?}");
        assert_eq!(row.confirmed("r2", vec![map(1)]).outcome(), (1, Vec::new()), "{reason:?}");
    }
    let again = Row { held: held(HeldReason::TooManyDeletions), ..Row::removed(vec![map(1)], 0) };
    assert_eq!(again.outcome(), (0, Vec::new()), "it is in the folder again");
}

#[test]
fn held_objects_do_not_keep_others_from_being_deleted() {
    let row = Row::without(vec![cluster("blue"), map(1)]);
    assert_eq!(row.outcome(), (1, vec![HeldReason::ProtectedKind]));
}

#[test]
fn protected_objects_count_when_they_are_removed() {
    let clusters = |count: usize| -> Vec<_> { (0..count).map(|n| cluster(&format!("c-{n}"))).collect() };
    // Nine Clusters and two ConfigMaps are removed from a folder with twenty objects.
    let removed = [clusters(9), maps(2)].concat();
    let inventory = [removed.clone(), (10..19).map(map).collect()].concat();
    let row = Row::removed(inventory.clone(), removed.len());
    let (deleted, held) = row.outcome();
    let count = |reason| held.iter().filter(|held| **held == reason).count();
    assert_eq!((deleted, count(HeldReason::ProtectedKind), count(HeldReason::TooManyDeletions)), (0, 9, 2));
    // They were removed earlier, so that only the ConfigMaps are removed now.
    let before = |object: &SyncedObject, reason| HeldObject::from(&Held::new(object.clone(), reason));
    let held: Vec<_> = clusters(9).iter().map(|cluster| before(cluster, HeldReason::ProtectedKind)).collect();
    let row = Row { held, ..Row::removed(inventory.clone(), removed.len()) };
    assert_eq!(row.outcome(), (2, vec![HeldReason::ProtectedKind; 9]));
    // Pruning was disabled when they were removed: the guard has not decided about them yet.
    let held: Vec<_> = removed.iter().map(|object| before(object, HeldReason::PruneDisabled)).collect();
    let row = Row { held, ..Row::removed(inventory, removed.len()) };
    assert_eq!(row.outcome().0, 0);
}

#[test]
fn a_deleted_sync_leaves_protected_and_held_objects() {
    let own = object("v1", "ServiceAccount", "fleet", "deployer");
    let inventory = [maps(30), vec![cluster("blue"), own]].concat();
    let held = vec![HeldObject::from(&Held::new(map(3), HeldReason::TooManyDeletions))];
    let row = Row { enabled: false, held, ..Row::removed(inventory, 0) };
    let plan = row.run(plan_deletion);
    assert_eq!(plan.delete.len(), 29);
    let kept: Vec<_> = plan.held.iter().map(|held| &*held.object.kind).collect();
    assert_eq!(kept, ["ConfigMap", "Cluster", "ServiceAccount"]);
    let plan = row.confirmed("r2", vec![cluster("blue")]).run(plan_deletion);
    assert!(plan.delete.iter().any(|object| object.kind == "Cluster"));
}

#[test]
fn the_source_and_the_history_decide_whether_a_revision_continues_the_last_one() {
    let status = |source: Value, path: &str| -> SyncStatus {
        serde_json::from_value(json!({
            "history": ["r2", "r1"],
            "lastApplied": {
                "revision": "r2", "digest": "", "sourceRef": source, "path": path, "at": "2026-01-01T00:00:00Z",
            },
        }))
        .unwrap()
    };
    let same = json!({"name": "repository", "scope": "Platform"});
    let rows = [
        (status(same.clone(), "clusters"), false),
        (status(same.clone(), "clusters/"), false),
        (status(same, "other"), true),
        (status(json!({"name": "repository", "scope": "Namespace"}), "clusters"), true),
        (SyncStatus::default(), false),
    ];
    for (status, changed) in rows {
        assert_eq!(PruneInput::is_source_changed(&sync(), &status), changed, "{status:?}");
    }
    let status = status(json!({"name": "repository"}), "clusters");
    for (revision, expected) in [("r3", false), ("r2", false), ("r1", true)] {
        assert_eq!(PruneInput::was_applied_before(revision, &status), expected, "{revision}");
    }
}

#[test]
fn an_object_is_read_again_before_it_is_deleted() {
    let cluster = ObjectId::new(CAPI, "Cluster", "fleet", "blue");
    let map = ObjectId::new("v1", "ConfigMap", "fleet", "blue");
    let live = |label: &str, more: Value| {
        let mut object = json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "labels": {"chandler.dev/sync": label}},
        });
        for (key, value) in more.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        object
    };
    let delete = DeleteDecision::Delete { uid: "u".to_owned(), resource_version: "7".to_owned() };
    let annotated = |name: &str| json!({"annotations": {name: ""}});
    let paused = DeleteDecision::Hold(HeldReason::ClusterPaused);
    let rows = [
        (&map, None, DeleteDecision::Gone),
        (&map, Some(live("fleet.base", json!({}))), delete.clone()),
        (&cluster, Some(live("fleet.base", json!({}))), delete),
        (&map, Some(live("fleet.other", json!({}))), DeleteDecision::NotOurs),
        (&map, Some(json!({"metadata": {"uid": "u", "resourceVersion": "7"}})), DeleteDecision::NotOurs),
        (
            &map,
            Some(live("fleet.base", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))),
            DeleteDecision::Gone,
        ),
        (
            &map,
            Some(live("fleet.base", annotated("clusterctl.cluster.x-k8s.io/delete-for-move"))),
            DeleteDecision::Moving,
        ),
        (&cluster, Some(live("fleet.base", annotated("cluster.x-k8s.io/paused"))), paused),
    ];
    for (id, live, expected) in rows {
        assert_eq!(decide_delete(id, live.as_ref().map(Live), "fleet.base"), expected, "{id} {live:?}");
    }
}
