//! Syncs: a folder of a git repository is applied to the management cluster. What goes wrong with the repository is in
//! `sync_guard`, several Syncs on one cluster are in `several_syncs`.

use std::time::Duration;

use chandler_e2e::{
    manager::Manager,
    programs,
    sync_world::{CAPI, NAMESPACE, SyncWorld, cluster, map, ready_message},
    wait::eventually,
};
use chandler_sandbox::clusterctl_move::{ClusterctlMove, ObjectId};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::RoleBinding};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Long enough for a manager to react to a change.
const REACTION_TIME: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_push_is_applied_a_bad_push_changes_nothing_and_a_revert_restores() {
    let world = Box::pin(SyncWorld::new("sync")).await;
    let _manager = world.start_manager();
    let good = [("clusters/a.yaml", map("a", "one")), ("clusters/b.yaml", cluster("blue"))];
    let first = world.push(&good).await;
    world.apply_sync(&json!({})).await;
    let status = world.wait("Ready", "Applied", Some(&first)).await;
    assert_eq!((status.inventory.len(), status.last_applied.unwrap().revision), (2, first.clone()));
    assert!(world.cluster_exists("blue").await);

    let bad = [
        ("clusters/a.yaml", map("a", "two")),
        ("clusters/b.yaml", cluster("blue")),
        (
            "clusters/c.yaml",
            "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec: {ports: 7}\n".to_owned(),
        ),
    ];
    let second = world.push(&bad).await;
    eventually("the bad push is reported", || async {
        let status = world.syncs().get("base").await.unwrap().status?;
        (status.revision.as_deref() == Some(&*second) && ready_message(&status).contains("c.yaml:1"))
            .then_some(())
    })
    .await;
    assert_eq!(world.value("a").await.as_deref(), Some("one"), "nothing of a bad commit is applied");

    let third = world.push(&good).await;
    world.wait("Ready", "Applied", Some(&third)).await;
    let fourth =
        world.push(&[("clusters/a.yaml", map("a", "three")), ("clusters/b.yaml", cluster("blue"))]).await;
    world.wait("Ready", "Applied", Some(&fourth)).await;
    assert_eq!(world.value("a").await.as_deref(), Some("three"));

    // A field that someone else has set is a conflict, unless `force` is set.
    let maps: Api<ConfigMap> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    let mine = Patch::Apply(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"value": "mine"},
    }));
    maps.patch("a", &PatchParams::apply("user").force(), &mine).await.unwrap();
    let fifth =
        world.push(&[("clusters/a.yaml", map("a", "five")), ("clusters/b.yaml", cluster("blue"))]).await;
    let status = world.wait("Ready", "Conflict", Some(&fifth)).await;
    assert!(ready_message(&status).contains(".data.value"), "{}", ready_message(&status));
    assert_eq!(world.value("a").await.as_deref(), Some("mine"));
    world.apply_sync(&json!({"force": true})).await;
    world.wait("Ready", "Applied", Some(&fifth)).await;
    assert_eq!(world.value("a").await.as_deref(), Some("five"));
}

#[tokio::test]
async fn a_kustomization_is_built_and_a_bad_one_changes_nothing() {
    let world = Box::pin(SyncWorld::new("sync-kustomize")).await;
    let _manager = world.start_manager();
    let files = |resources: &str| {
        [
            ("base/kustomization.yaml", "resources: [a.yaml]\n".to_owned()),
            ("base/a.yaml", map("a", "one")),
            ("clusters/kustomization.yaml", format!("resources: [{resources}]\nnamePrefix: built-\n")),
        ]
    };
    let first = world.push(&files("../base")).await;
    world.apply_sync(&json!({})).await;
    world.wait("Ready", "Applied", Some(&first)).await;
    assert_eq!(world.value("built-a").await.as_deref(), Some("one"));
    for (resources, problem) in
        [("../missing", "missing"), ("https://git.example/base", "kustomization.yaml")]
    {
        let bad = world.push(&files(resources)).await;
        let status = world.wait("Ready", "InvalidPackage", Some(&bad)).await;
        assert!(ready_message(&status).contains(problem), "{}", ready_message(&status));
        assert_eq!(world.value("built-a").await.as_deref(), Some("one"));
    }
}

#[tokio::test]
async fn a_definition_and_its_new_field_are_in_one_commit() {
    let world = Box::pin(SyncWorld::new("sync-definitions")).await;
    let _manager = world.start_manager();
    let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("x.example", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::namespaced_with(world.cluster.client.clone(), NAMESPACE, &widgets);
    let files = |fields: &[&str], spec: Value| {
        let properties: serde_json::Map<_, _> =
            fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.x.example"},
            "spec": {
                "group": "x.example", "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": properties},
                    }}},
                }],
            },
        });
        let widget = json!({
            "apiVersion": "x.example/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec,
        });
        [
            ("clusters/w.json", widget.to_string()),
            ("clusters/definition.json", definition.to_string()),
            ("clusters/m.yaml", map("after", spec["one"].as_str().unwrap())),
        ]
    };
    let spec = async || widgets.get("w").await.unwrap().data["spec"].clone();
    let first = world.push(&files(&["one"], json!({"one": "first"}))).await;
    world.apply_sync(&json!({})).await;
    world.wait("Ready", "Applied", Some(&first)).await;
    let second = world.push(&files(&["one", "two"], json!({"one": "first", "two": "second"}))).await;
    world.wait("Ready", "Applied", Some(&second)).await;
    assert_eq!(spec().await, json!({"one": "first", "two": "second"}));

    // Nothing but the definition is written if an object is not valid with it either.
    let bad = world.push(&files(&["one", "two", "three"], json!({"one": "third", "tree": "third"}))).await;
    eventually("the bad object is reported", || async {
        let status = world.syncs().get("base").await.unwrap().status?;
        let message = ready_message(&status);
        (status.revision.as_deref() == Some(&*bad)
            && message.contains("w.json:1")
            && message.contains("tree")
            && message.contains("CustomResourceDefinitions of this revision are written"))
        .then_some(())
    })
    .await;
    assert_eq!(
        (spec().await["one"].clone(), world.value("after").await),
        (json!("first"), Some("first".to_owned()))
    );
    let fixed =
        world.push(&files(&["one", "two", "three"], json!({"one": "fourth", "three": "fourth"}))).await;
    world.wait("Ready", "Applied", Some(&fixed)).await;
    assert_eq!(
        (spec().await, world.value("after").await),
        (json!({"one": "fourth", "three": "fourth"}), Some("fourth".to_owned()))
    );
}

#[tokio::test]
async fn a_killed_manager_loses_nothing() {
    let world = Box::pin(SyncWorld::new("sync-kill")).await;
    // Few enough deletions at a time for the guard.
    let files = |from: usize| -> Vec<(String, String)> {
        (from..from + 9)
            .map(|number| (format!("clusters/{number}.yaml"), map(&format!("m{number}"), "x")))
            .collect()
    };
    world.apply_sync(&json!({})).await;
    let mut last = String::new();
    for round in 0..3 {
        let files = files(round);
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        last = world.push(&files).await;
        let manager = Manager::from_process(world.cluster.start_manager_with_lease(15));
        eventually("the revision is being applied", || async {
            let status = world.syncs().get("base").await.unwrap().status?;
            (status.revision.as_deref() == Some(&*last)).then_some(())
        })
        .await;
        manager.kill().await;
    }
    let _manager = Manager::from_process(world.cluster.start_manager_with_lease(15));
    let status = world.wait("Ready", "Applied", Some(&last)).await;
    for number in 0..11 {
        let name = format!("m{number}");
        let known = status.inventory.iter().any(|object| object.name == name);
        assert_eq!(known, number >= 2, "{name}: {:?}", status.held);
        assert_eq!(
            world.value(&name).await.is_some(),
            known,
            "{name} exists exactly if it is in the inventory"
        );
    }
}

#[tokio::test]
async fn a_sync_suspends_itself_during_a_move_and_is_resumed() {
    let world = Box::pin(SyncWorld::new("sync-move")).await;
    let _manager = world.start_manager();
    let revision = world.push(&[("clusters/b.yaml", cluster("blue"))]).await;
    world.apply_sync(&json!({})).await;
    world.wait("Ready", "Applied", Some(&revision)).await;

    let client = &world.cluster.client;
    let clusterctl =
        ClusterctlMove { source: client, target: client, namespace: NAMESPACE, pause: REACTION_TIME };
    clusterctl.set_paused(client, "blue", true).await.unwrap();
    assert!(clusterctl.delete(&ObjectId::new(CAPI, "Cluster", "blue")).await.unwrap());
    world.wait("Moving", "Moving", None).await;
    let files = [("clusters/b.yaml", cluster("blue")), ("clusters/a.yaml", map("a", "one"))];
    let revision = world.push(&files).await;
    tokio::time::sleep(REACTION_TIME).await;
    assert!(!world.cluster_exists("blue").await && world.value("a").await.is_none(), "nothing is written");

    let kubeconfig = world.cluster.plane.kubeconfig_path().clone();
    let output = tokio::task::spawn_blocking(move || {
        let mut command = std::process::Command::new(programs::chandler());
        command.args(["resume", "sync", "base", "--namespace", NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        command.output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.wait("Moving", "NotMoving", None).await;
    world.wait("Ready", "Applied", Some(&revision)).await;
    assert!(world.cluster_exists("blue").await && world.value("a").await.is_some());
}

#[tokio::test]
async fn the_account_of_a_sync_decides_what_it_may_write() {
    let world = Box::pin(SyncWorld::new("sync-account")).await;
    let _manager = world.start_manager();
    world.push(&[("clusters/a.yaml", map("a", "one"))]).await;
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "reader", "namespace": NAMESPACE},
        }))
        .await;
    world.apply_sync(&json!({"serviceAccountName": "reader"})).await;
    let status = world.wait("Ready", "Forbidden", None).await;
    let message = ready_message(&status);
    assert!(message.contains("system:serviceaccount:default:reader"), "{message}");
    assert!(world.value("a").await.is_none());

    let bindings: Api<RoleBinding> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    bindings.delete("chandler-impersonator", &DeleteParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"interval": "11m"}}));
    world.syncs().patch("base", &PatchParams::default(), &patch).await.unwrap();
    eventually("the missing permission is reported", || async {
        let status = world.syncs().get("base").await.unwrap().status?;
        ready_message(&status).contains("chandler-impersonator").then_some(())
    })
    .await;
}
