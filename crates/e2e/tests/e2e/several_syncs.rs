//! Several Syncs on one management cluster: which one waits for which, to which one an object belongs, and what none of them
//! writes or deletes.

use chandler_api::extensions::Source;
use chandler_e2e::{
    sync_world::{CAPI, NAMESPACE, SyncWorld, cluster, map, ready_message},
    wait::eventually,
};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Returns the source of a Sync of a folder.
fn folder(path: &str) -> Value {
    json!({"sourceRef": {"name": "git"}, "path": path})
}

fn documents(all: &[String]) -> String {
    all.join("---\n")
}

fn maps(world: &SyncWorld) -> Api<ConfigMap> {
    Api::namespaced(world.cluster.client.clone(), NAMESPACE)
}

/// Returns the Sync that a ConfigMap belongs to.
async fn owner(world: &SyncWorld, name: &str) -> Option<String> {
    maps(world).get(name).await.unwrap().labels().get("chandler.dev/sync").cloned()
}

/// Deletes a Sync, which keeps its objects.
async fn delete_sync(world: &SyncWorld, name: &str) {
    world.syncs().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn set_paused(world: &SyncWorld, name: &str, paused: bool) {
    let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
    world.clusters().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until the condition `Ready` of a Sync has a message with this text.
async fn wait_message(world: &SyncWorld, name: &str, text: &str) {
    eventually(&format!("Sync {name} reports {text}"), || async {
        let status = world.syncs().get(name).await.unwrap().status?;
        ready_message(&status).contains(text).then_some(())
    })
    .await;
}

#[tokio::test]
async fn syncs_wait_for_others_and_respect_what_is_not_theirs() {
    let world = Box::pin(SyncWorld::new("sync-several")).await;
    let _manager = world.start_manager();
    Box::pin(dependencies(&world)).await;
    Box::pin(one_object_in_two_folders(&world)).await;
    Box::pin(own_objects(&world)).await;
    Box::pin(paused_clusters(&world)).await;
    Box::pin(objects_of_flux(&world)).await;
}

/// A Sync is applied after those that it depends on, at the same revision.
async fn dependencies(world: &SyncWorld) {
    let files = |base: String, apps: &str| [("base/a.yaml", base), ("apps/b.yaml", map("b", apps))];
    let first = world.push(&files(map("a", "one"), "one")).await;
    let apps = json!({"source": folder("apps"), "dependsOn": ["base"]});
    world.apply_named_sync("apps", &apps).await;
    let status = world.wait_sync("apps", "Ready", "WaitingForDependencies", Some(&first)).await;
    assert_eq!(ready_message(&status), "Sync base does not exist");
    assert_eq!(world.value("b").await, None);
    let base = json!({"source": folder("base")});
    world.apply_named_sync("base", &base).await;
    world.wait_sync("apps", "Ready", "Applied", Some(&first)).await;
    assert_eq!(world.value("a").await.as_deref(), Some("one"));
    assert_eq!(world.value("b").await.as_deref(), Some("one"));

    // A bad commit of one Sync keeps those that depend on it at the last good one.
    let bad = world.push(&files("apiVersion: v1\nkind: Conf".to_owned(), "two")).await;
    world.wait_sync("base", "Ready", "InvalidPackage", Some(&bad)).await;
    wait_message(world, "apps", "Sync base is not ready").await;
    assert_eq!(world.value("b").await.as_deref(), Some("one"));
    let fixed = world.push(&files(map("a", "two"), "two")).await;
    world.wait_sync("apps", "Ready", "Applied", Some(&fixed)).await;
    assert_eq!(world.value("a").await.as_deref(), Some("two"));
    assert_eq!(world.value("b").await.as_deref(), Some("two"));

    world.apply_named_sync("base", &json!({"source": folder("base"), "dependsOn": ["apps"]})).await;
    for (name, path) in [("base", "base → apps → base"), ("apps", "apps → base → apps")] {
        let status = world.wait_sync(name, "Ready", "InvalidSpec", None).await;
        assert!(ready_message(&status).contains(path), "{}", ready_message(&status));
        assert_eq!(status.last_applied.unwrap().revision, fixed);
    }
    world.apply_named_sync("base", &base).await;
    for name in ["base", "apps"] {
        world.wait_sync(name, "Ready", "Applied", Some(&fixed)).await;
    }
    for name in ["apps", "base"] {
        delete_sync(world, name).await;
    }
}

/// The older Sync keeps an object that two folders contain. What another Sync has taken over is not deleted.
async fn one_object_in_two_folders(world: &SyncWorld) {
    let (x, blue) = (|by: &str| map("x", by), cluster("blue"));
    let files = |older: &[String], younger: &[String]| {
        let older = [vec![map("old", "one")], older.to_vec()].concat();
        [("older/all.yaml", documents(&older)), ("younger/all.yaml", documents(younger))]
    };
    // A short interval, because a conflict is not retried before a minute has passed.
    let older = |prune: Value| json!({"source": folder("older"), "prune": prune, "interval": "5s"});
    let first = world.push(&files(&[x("older"), blue.clone()], &[x("younger"), map("z", "one")])).await;
    world.apply_named_sync("older", &older(json!({"enabled": false}))).await;
    world.wait_sync("older", "Ready", "Applied", Some(&first)).await;
    world.apply_named_sync("younger", &json!({"source": folder("younger"), "interval": "5s"})).await;
    let status = world.wait_sync("younger", "Ready", "Conflict", Some(&first)).await;
    let expected = "ConfigMap default/x belongs to Sync default/older, which is older";
    assert!(ready_message(&status).contains(expected), "{}", ready_message(&status));
    assert_eq!(world.value("x").await.as_deref(), Some("older"));
    assert_eq!(world.value("z").await.as_deref(), Some("one"), "everything else is applied");

    // The objects move to the other folder. The older Sync keeps them, so the younger one takes them over.
    let second = world.push(&files(&[], &[x("younger"), map("z", "one"), blue.clone()])).await;
    world.wait_sync("younger", "Ready", "Applied", Some(&second)).await;
    assert_eq!(world.value("x").await.as_deref(), Some("younger"));
    assert_eq!(owner(world, "x").await.as_deref(), Some("default.younger"));
    world.wait_sync("older", "PruneHeld", "NothingHeld", Some(&second)).await;
    let object = json!({"apiVersion": CAPI, "kind": "Cluster", "namespace": NAMESPACE, "name": "blue"});
    let confirm = json!({"revision": second, "objects": [object]});
    world.apply_named_sync("older", &older(json!({"enabled": true, "confirm": confirm}))).await;
    let status = world.wait_sync("older", "PruneHeld", "NothingHeld", Some(&second)).await;
    let names: Vec<_> = status.inventory.iter().map(|object| object.name.as_str()).collect();
    assert_eq!(names, ["old"]);
    assert!(world.cluster_exists("blue").await && world.value("x").await.is_some(), "nothing is deleted");

    // The older Sync may take an object back.
    let third = world.push(&files(&[x("older")], &[x("younger"), map("z", "one"), blue])).await;
    world.wait_sync("older", "Ready", "Applied", Some(&third)).await;
    let status = world.wait_sync("younger", "Ready", "Conflict", Some(&third)).await;
    assert!(ready_message(&status).contains(expected), "{}", ready_message(&status));
    assert_eq!(world.value("x").await.as_deref(), Some("older"));
    delete_sync(world, "younger").await;
    delete_sync(world, "older").await;
}

/// A Sync whose folder contained itself, its Source and its account deletes none of them.
async fn own_objects(world: &SyncWorld) {
    let own = [
        ("Source", "chandler.dev/v1alpha1", "git", json!({"interval": "1s"})),
        ("Sync", "chandler.dev/v1alpha1", "own", json!({"serviceAccountName": "deployer"})),
        ("ServiceAccount", "v1", "deployer", Value::Null),
    ];
    let document = |(kind, version, name, spec): &(&str, &str, &str, Value)| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        if !spec.is_null() {
            object["spec"] = spec.clone();
        }
        format!("{object}\n")
    };
    let with = documents(&own.each_ref().map(document));
    let first = world.push(&[("own/own.yaml", with), ("own/c.yaml", map("c", "one"))]).await;
    world.apply_named_sync("own", &json!({"source": folder("own")})).await;
    let status = world.wait_sync("own", "Ready", "Applied", Some(&first)).await;
    assert_eq!(status.inventory.len(), 4);

    let second = world.push(&[("own/c.yaml", map("c", "two"))]).await;
    let objects = own.each_ref().map(|(kind, version, name, _)| {
        json!({"apiVersion": version, "kind": kind, "namespace": NAMESPACE, "name": name})
    });
    let confirm = json!({"revision": second, "objects": objects});
    let prune = json!({"enabled": true, "confirm": confirm});
    world.apply_named_sync("own", &json!({"source": folder("own"), "prune": prune})).await;
    let status = world.wait_sync("own", "Ready", "Applied", Some(&second)).await;
    let reasons: Vec<_> = status.held.iter().map(|held| held.reason.as_str()).collect();
    assert_eq!(reasons, ["OwnObject"; 3]);
    let sources: Api<Source> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    assert_eq!(sources.get("git").await.unwrap().metadata.deletion_timestamp, None);
    assert_eq!(accounts.get("deployer").await.unwrap().metadata.deletion_timestamp, None);
    let third = world.push(&[("own/c.yaml", map("c", "three"))]).await;
    world.wait_sync("own", "Ready", "Applied", Some(&third)).await;
    assert_eq!(world.value("c").await.as_deref(), Some("three"));
    delete_sync(world, "own").await;
}

/// A paused Cluster is neither written nor deleted. The Sync continues when it is not paused any more.
async fn paused_clusters(world: &SyncWorld) {
    let green = |region: &str| {
        format!(
            "apiVersion: {CAPI}\nkind: Cluster\nmetadata: {{name: green, labels: {{region: {region}}}}}\n\
             spec: {{paused: false}}\n"
        )
    };
    let label = || async { world.clusters().get("green").await.unwrap().labels().get("region").cloned() };
    let first = world.push(&[("paused/c.yaml", green("north")), ("paused/d.yaml", map("d", "one"))]).await;
    world.apply_named_sync("paused", &json!({"source": folder("paused")})).await;
    world.wait_sync("paused", "Ready", "Applied", Some(&first)).await;
    set_paused(world, "green", true).await;
    let second = world.push(&[("paused/c.yaml", green("south")), ("paused/e.yaml", map("e", "one"))]).await;
    let status = world.wait_sync("paused", "Ready", "ClusterPaused", Some(&second)).await;
    assert!(ready_message(&status).contains("Cluster default/green is paused"), "{}", ready_message(&status));
    assert_eq!(label().await.as_deref(), Some("north"));
    assert_eq!(world.value("e").await.as_deref(), Some("one"), "everything else is applied");
    assert_eq!(world.value("d").await.as_deref(), Some("one"), "nothing is deleted");
    set_paused(world, "green", false).await;
    world.wait_sync("paused", "Ready", "Applied", Some(&second)).await;
    assert_eq!(label().await.as_deref(), Some("south"));
    assert_eq!(world.value("d").await, None);

    set_paused(world, "green", true).await;
    let third = world.push(&[("paused/e.yaml", map("e", "two"))]).await;
    world.wait_sync("paused", "PruneHeld", "Held", Some(&third)).await;
    let object = json!({"apiVersion": CAPI, "kind": "Cluster", "namespace": NAMESPACE, "name": "green"});
    let confirm = json!({"revision": third, "objects": [object]});
    let prune = json!({"enabled": true, "confirm": confirm});
    world.apply_named_sync("paused", &json!({"source": folder("paused"), "prune": prune})).await;
    let status = world.wait_sync("paused", "Ready", "Applied", Some(&third)).await;
    assert_eq!(status.held[0].reason, "ClusterPaused");
    assert!(world.cluster_exists("green").await);
    set_paused(world, "green", false).await;
    eventually("the Cluster is deleted", || async { (!world.cluster_exists("green").await).then_some(()) })
        .await;
    delete_sync(world, "paused").await;
}

/// Objects that Flux has applied are taken over as the guide says.
async fn objects_of_flux(world: &SyncWorld) {
    let applied = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "f", "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}},
        "data": {"value": "one", "other": "one"},
    });
    let flux = PatchParams::apply("kustomize-controller").force();
    maps(world).patch("f", &flux, &Patch::Apply(&applied)).await.unwrap();
    let both =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: f}\ndata: {value: one, other: one}\n".to_owned();
    let first = world.push(&[("flux/f.yaml", both)]).await;
    world.apply_named_sync("flux", &json!({"source": folder("flux")})).await;
    world.wait_sync("flux", "Ready", "Applied", Some(&first)).await;
    assert_eq!(owner(world, "f").await.as_deref(), Some("default.flux"));

    // A field that is removed from the repository stays while Flux's field manager owns it. A field that is changed is a
    // conflict, unless `force` is set.
    let second = world.push(&[("flux/f.yaml", map("f", "one"))]).await;
    world.wait_sync("flux", "Ready", "Applied", Some(&second)).await;
    let data = maps(world).get("f").await.unwrap().data.unwrap();
    assert_eq!(data.get("other").map(String::as_str), Some("one"));
    let third = world.push(&[("flux/f.yaml", map("f", "two"))]).await;
    let status = world.wait_sync("flux", "Ready", "Conflict", Some(&third)).await;
    let message = ready_message(&status);
    assert!(message.contains(".data.value") && message.contains("kustomize-controller"), "{message}");
    assert_eq!(world.value("f").await.as_deref(), Some("one"));
    world.apply_named_sync("flux", &json!({"source": folder("flux"), "force": true})).await;
    world.wait_sync("flux", "Ready", "Applied", Some(&third)).await;
    assert_eq!(world.value("f").await.as_deref(), Some("two"));
}
