//! The prune guard of Syncs: whatever happens to a repository, no Cluster is deleted unless a user has confirmed it.

use chandler_api::extensions::{Source, SyncStatus};
use chandler_e2e::{
    sync_world::{CAPI, NAMESPACE, SyncWorld, cluster, map, ready_message},
    wait::eventually,
};
use kube::Api;
use serde_json::json;

type Files = Vec<(&'static str, String)>;

/// Files of ConfigMaps.
const MAPS: [(&str, &str); 10] = [
    ("clusters/n0.yaml", "n0"),
    ("clusters/n1.yaml", "n1"),
    ("clusters/n2.yaml", "n2"),
    ("clusters/n3.yaml", "n3"),
    ("clusters/n4.yaml", "n4"),
    ("clusters/n5.yaml", "n5"),
    ("clusters/n6.yaml", "n6"),
    ("clusters/n7.yaml", "n7"),
    ("clusters/n8.yaml", "n8"),
    ("clusters/n9.yaml", "n9"),
];

fn good() -> Files {
    vec![("clusters/a.yaml", map("a", "one")), ("clusters/b.yaml", cluster("blue"))]
}

/// The good files, another one, and `count` of [`MAPS`].
fn many(count: usize) -> Files {
    let maps = MAPS[..count].iter().map(|(path, name)| (*path, map(name, "one")));
    good().into_iter().chain([("clusters/extra.yaml", map("extra", "one"))]).chain(maps).collect()
}

async fn assert_kept(world: &SyncWorld, what: &str) {
    assert!(world.cluster_exists("blue").await && world.value("a").await.is_some(), "{what}");
}

/// Pushes files and waits until they are applied. Returns the status.
async fn push_applied(world: &SyncWorld, files: &[(&str, String)]) -> SyncStatus {
    let revision = world.push(files).await;
    world.wait("Ready", "Applied", Some(&revision)).await
}

fn reasons(status: &SyncStatus) -> Vec<&str> {
    status.held.iter().map(|held| held.reason.as_str()).collect()
}

#[tokio::test]
async fn no_state_of_the_repository_deletes_a_cluster() {
    let mut world = Box::pin(SyncWorld::new("sync-guard")).await;
    let manager = world.start_manager();
    let first = world.push(&good()).await;
    world.apply_sync(&json!({})).await;
    world.wait("Ready", "Applied", Some(&first)).await;
    Box::pin(folders(&world)).await;
    Box::pin(branches(&world, &first)).await;
    Box::pin(other_folder(&world)).await;
    Box::pin(missing_repository(&world)).await;
    Box::pin(confirmation(&world)).await;

    // The server is gone, and a new manager has no files of an earlier revision.
    push_applied(&world, &good()).await;
    manager.stop().await;
    world.git = None;
    std::fs::remove_dir_all(world.cluster.store()).unwrap();
    let _manager = world.start_manager();
    let status = world.wait("Ready", "SourceUnavailable", None).await;
    assert!(ready_message(&status).contains("has not been fetched yet"), "{}", ready_message(&status));
    assert_kept(&world, "no server").await;
}

/// Deleted, renamed, empty and half-written folders.
async fn folders(world: &SyncWorld) {
    let renamed: Files = vec![("other/a.yaml", map("a", "one")), ("other/b.yaml", cluster("blue"))];
    let half = cluster("blue")[..60].to_owned();
    let empty = [vec![("clusters/kustomization.yaml", "namePrefix: built-\n".to_owned())], good()].concat();
    let rows: [(&str, Files, &str); 7] = [
        ("deleted folder", vec![("README.md", "text".to_owned())], "InvalidPackage"),
        ("renamed folder", renamed, "InvalidPackage"),
        ("empty folder", vec![("clusters/README.md", "text".to_owned())], "InvalidPackage"),
        ("only comments", vec![("clusters/a.yaml", "# nothing\n".to_owned())], "InvalidPackage"),
        ("a kustomization that renders nothing", empty, "InvalidPackage"),
        (
            "half-written file",
            vec![("clusters/a.yaml", map("a", "one")), ("clusters/b.yaml", half)],
            "InvalidPackage",
        ),
        ("without the Cluster", vec![("clusters/a.yaml", map("a", "one"))], "Applied"),
    ];
    for (what, files, reason) in rows {
        let revision = world.push(&files).await;
        world.wait("Ready", reason, Some(&revision)).await;
        assert_kept(world, what).await;
    }
    let status = world.wait("PruneHeld", "Held", None).await;
    assert_eq!((&*status.held[0].kind, &*status.held[0].name), ("Cluster", "blue"));
    let status = push_applied(world, &good()).await;
    assert_eq!(reasons(&status), [] as [&str; 0]);
}

/// A force-push, a branch that is reset, and the loss of many objects.
async fn branches(world: &SyncWorld, first: &str) {
    world.tree.git(&["reset", "--quiet", "--hard", first]).await.unwrap();
    let status = push_applied(world, &[("clusters/a.yaml", map("a", "forced"))]).await;
    assert_eq!(reasons(&status), ["ProtectedKind"]);
    assert_kept(world, "a force-push").await;

    let before = push_applied(world, &good()).await.revision.unwrap();
    push_applied(world, &many(0)).await;
    world.tree.git(&["reset", "--quiet", "--hard", &before]).await.unwrap();
    world.tree.push().await.unwrap();
    let status = world.wait("PruneHeld", "Held", Some(&before)).await;
    assert_eq!((reasons(&status), &*status.held[0].name), (vec!["RevisionAppliedBefore"], "extra"));
    assert!(world.value("extra").await.is_some());

    let all = world.push(&many(10)).await;
    world.wait("PruneHeld", "NothingHeld", Some(&all)).await;
    let fewer = world.push(&many(6)).await;
    let status = world.wait("PruneHeld", "Held", Some(&fewer)).await;
    assert_eq!(reasons(&status), ["TooManyDeletions"; 4]);
    assert!(world.value("n9").await.is_some());
    assert_kept(world, "many deletions").await;
}

/// The Sync names another folder.
async fn other_folder(world: &SyncWorld) {
    let files = [many(6), vec![("other/a.yaml", map("a", "other"))]].concat();
    let revision = push_applied(world, &files).await.revision.unwrap();
    let source = json!({"sourceRef": {"name": "git"}, "path": "other"});
    world.apply_sync(&json!({"source": source})).await;
    let status = world.wait("Ready", "Applied", Some(&revision)).await;
    let reasons = reasons(&status);
    assert!(reasons.contains(&"SourceChanged") && reasons.contains(&"ProtectedKind"), "{reasons:?}");
    assert_eq!(world.value("a").await.as_deref(), Some("other"));
    assert!(world.value("n0").await.is_some());
    assert_kept(world, "another folder").await;
    world.apply_sync(&json!({})).await;
    world.wait("Ready", "Applied", Some(&revision)).await;
}

/// The server answers that the repository does not exist.
async fn missing_repository(world: &SyncWorld) {
    let sources: Api<Source> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    let (path, gone) = (world.served.join("clusters.git"), world.served.join("gone.git"));
    std::fs::rename(&path, &gone).unwrap();
    eventually("the missing repository is reported", || async {
        let status = sources.get("git").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False" && ready.message.contains("the repository does not exist")).then_some(())
    })
    .await;
    // The objects are applied again, from the last revision.
    world.apply_sync(&json!({"interval": "11m"})).await;
    world.wait("Ready", "Applied", None).await;
    assert_kept(world, "a missing repository").await;
    std::fs::rename(&gone, &path).unwrap();
    world.apply_sync(&json!({})).await;
    push_applied(world, &good()).await;
}

/// Only the objects that are named for this revision are deleted.
async fn confirmation(world: &SyncWorld) {
    let status = push_applied(world, &[("clusters/a.yaml", map("a", "one"))]).await;
    assert_kept(world, "no confirmation").await;
    let object = json!({"apiVersion": CAPI, "kind": "Cluster", "namespace": NAMESPACE, "name": "blue"});
    let confirm = json!({"revision": status.revision.unwrap(), "objects": [object]});
    world.apply_sync(&json!({"prune": {"enabled": true, "confirm": confirm}})).await;
    eventually("a confirmed Cluster is deleted", || async {
        (!world.cluster_exists("blue").await).then_some(())
    })
    .await;
    assert!(world.value("n9").await.is_some(), "what is not confirmed stays held");
    // The deletion is recorded before the Cluster is created again.
    eventually("the Cluster is no longer in the inventory", || async {
        let status = world.syncs().get("base").await.unwrap().status?;
        status.inventory.iter().all(|object| object.kind != "Cluster").then_some(())
    })
    .await;
}
