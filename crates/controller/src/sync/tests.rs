//! Reconciles Syncs against an API server in memory: as whom it writes, in which order, and what it never does.

mod hand_over;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use bytes::Bytes;
use chandler_api::extensions::{Reference, SyncObject, SyncStatus};
use chandler_core::{
    conditions,
    failure::{Category, Failure},
    source::is_manifest,
    sync::{BuiltDocument, Document, ObjectId, check_files, read_objects},
};
use chandler_source::{NamespaceSemaphore, SourceTree};
use futures::future::{BoxFuture, ready};
use kube::{
    Client, ResourceExt as _,
    api::DynamicObject,
    runtime::{reflector::store::Writer, watcher::Event},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    ClusterMoves, Directories, Render, Runs, ServedKinds, SyncContext, Trees, WrittenStatuses, has_recorded,
    reconciler, render::folder_files,
};
use crate::{
    events::Events,
    fake_api_server::{FakeApiServer, Logged},
    locks::Mutex,
    tenancies::Tenancies,
    watch::{Change, Scope},
};

const SYNC: &str = "/apis/chandler.dev/v1alpha1/namespaces/fleet/syncs/base";
const CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet/clusters/blue";
const ACCOUNT: &str = "system:serviceaccount:fleet:deployer";

/// A namespace that may not use the Sources.
const FOREIGN: &str = "foreign";

/// A Source whose files a test sets.
struct FakeTree {
    current: Mutex<Result<Arc<SourceTree>, Failure>>,
    /// What polls of other Sources of the repository return.
    polled: Mutex<Result<bool, Failure>>,
    /// What happens during the next poll.
    on_poll: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Why polls of the Source `git` fail.
    own_failure: Mutex<Option<Failure>>,
    /// What a poll of the Source `git` finds.
    next: Mutex<Option<Arc<SourceTree>>>,
    /// Whether the other Sources have to be polled before they can be read.
    is_unread: Mutex<bool>,
    changes: watch::Sender<u64>,
}

impl Trees for FakeTree {
    fn tree<'a>(
        &'a self,
        source: &'a Reference,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<SourceTree>, Failure>> {
        let is_unread = source.name != "git" && *self.is_unread.lock() || namespace == FOREIGN;
        let unread = Failure::new(Category::SourceUnavailable, "it has not been fetched yet");
        Box::pin(ready(if is_unread { Err(unread) } else { self.current.lock().clone() }))
    }

    fn repository(&self, _: &Reference, _: &str) -> Option<String> {
        Some("repository".to_owned())
    }

    fn poll<'a>(&'a self, source: &'a Reference, namespace: &'a str) -> BoxFuture<'a, Result<bool, Failure>> {
        if let Some(happen) = self.on_poll.lock().take() {
            happen();
        }
        let own_failure = self.own_failure.lock().clone().filter(|_| source.name == "git");
        let polled = if let Some(failure) = own_failure {
            Err(failure)
        } else if source.name == "git" {
            if let Some(next) = self.next.lock().take() {
                *self.current.lock() = Ok(next);
            }
            Ok(namespace != FOREIGN)
        } else {
            self.polled.lock().clone()
        };
        if matches!(polled, Ok(true)) {
            *self.is_unread.lock() = false;
        }
        Box::pin(ready(polled))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Reads plain manifests in this process.
struct PlainFiles;

impl Render for PlainFiles {
    fn render<'a>(
        &'a self,
        tree: &'a SourceTree,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Document>, Failure>> {
        let read = || {
            let files = folder_files(tree, path)?;
            check_files(&files)?;
            let built = files.iter().filter(|(file, _)| is_manifest(file)).flat_map(|(file, content)| {
                let text = String::from_utf8_lossy(content).into_owned();
                let document =
                    |yaml: &str| BuiltDocument { file: file.clone(), line: 1, yaml: yaml.to_owned() };
                text.split("---\n").map(document).collect::<Vec<_>>()
            });
            read_objects(built)
        };
        Box::pin(ready(read()))
    }
}

/// An API server with a Sync of the folder `clusters`.
struct World {
    server: FakeApiServer,
    tree: Arc<FakeTree>,
    tenancies: Vec<Arc<DynamicObject>>,
    /// The paths of the Syncs.
    syncs: Vec<String>,
    /// The names of the Syncs that were enqueued.
    enqueued: Arc<Mutex<Vec<String>>>,
}

fn map_path(name: &str) -> String {
    format!("/api/v1/namespaces/fleet/configmaps/{name}")
}

fn map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
}

fn cluster() -> String {
    "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: blue}\nspec: {paused: false}\n"
        .to_owned()
}

impl World {
    fn new(spec: &Value) -> Self {
        let mut sync = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": "base", "namespace": "fleet", "generation": 1},
            "spec": {
                "source": {"sourceRef": {"name": "git"}, "path": "clusters"}, "serviceAccountName": "deployer",
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            sync["spec"][key] = value.clone();
        }
        let server = FakeApiServer::default();
        server.put(SYNC, sync);
        let unread = Failure::new(Category::SourceUnavailable, "Source git has not been read yet");
        let (current, polled) = (Mutex::new(Err(unread)), Mutex::new(Ok(true)));
        let (own_failure, next, is_unread) = (Mutex::default(), Mutex::default(), Mutex::default());
        let changes = watch::Sender::default();
        let on_poll = Mutex::default();
        let tree = FakeTree { current, polled, on_poll, own_failure, next, is_unread, changes };
        Self {
            server,
            tree: Arc::new(tree),
            tenancies: Vec::new(),
            syncs: vec![SYNC.to_owned()],
            enqueued: Arc::default(),
        }
    }

    fn tenancies(&self, client: &Client) -> Tenancies {
        let tenancies = Tenancies::new(client.clone(), None);
        tenancies.set(&self.tenancies);
        tenancies
    }

    /// A Sync that deletes what is removed from its folder.
    fn pruning() -> Self {
        Self::new(&json!({"prune": {"enabled": true}}))
    }

    /// Pushes a commit with these files.
    fn push(&self, revision: &str, files: &[(&str, String)]) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from(text.clone())));
        let tree = SourceTree { revision: revision.to_owned(), files: files.collect::<BTreeMap<_, _>>() };
        *self.tree.current.lock() = Ok(Arc::new(tree));
    }

    fn sync(&self) -> SyncObject {
        serde_json::from_value(self.server.get(SYNC).unwrap()).unwrap()
    }

    fn status(&self) -> SyncStatus {
        self.sync().status.unwrap_or_default()
    }

    /// Returns the reason of a condition.
    fn reason(&self, type_: &str) -> String {
        conditions::find(&self.status().conditions, type_).unwrap().reason.clone()
    }

    /// Returns what a manager has in memory after its start.
    fn context(&self) -> Arc<SyncContext> {
        let mut writer = Writer::new(());
        for sync in self.syncs.iter().filter_map(|path| self.server.get(path)) {
            writer.apply_watcher_event(&Event::Apply(serde_json::from_value(sync).unwrap()));
        }
        let (client, enqueued) = (self.server.client(), self.enqueued.clone());
        Arc::new(SyncContext {
            events: Events::new(client.clone()),
            scope: Scope { namespace: None, labels: None },
            store: writer.as_reader(),
            trees: self.tree.clone(),
            render: Arc::new(PlainFiles),
            kinds: ServedKinds::new(client.clone()),
            moves: ClusterMoves::default(),
            written: WrittenStatuses::default(),
            runs: Runs::default(),
            directories: Directories::default(),
            deleted: AtomicU64::default(),
            contested: OnceLock::new(),
            limit: Arc::new(NamespaceSemaphore::new(4)),
            platform: "platform".to_owned(),
            tenancies: self.tenancies(&client),
            enqueue: Box::new(move |sync| enqueued.lock().push(sync.name_any())),
            client,
        })
    }

    async fn reconcile(&self) {
        self.reconcile_in(&self.context()).await;
    }

    async fn reconcile_in(&self, context: &Arc<SyncContext>) {
        reconciler::reconcile(Arc::new(self.sync()), context.clone()).await.unwrap();
    }

    /// Returns the finalizers of the Sync; a deleted one has none.
    fn finalizers(&self) -> Vec<String> {
        let sync = self.server.get(SYNC).unwrap_or_default();
        serde_json::from_value(sync["metadata"]["finalizers"].clone()).unwrap_or_default()
    }

    fn exists(&self, path: &str) -> bool {
        self.server.get(path).is_some()
    }
}

#[tokio::test]
async fn objects_are_written_as_the_account_after_they_are_recorded() {
    let world = World::new(&json!({}));
    world.push("r1", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster()), ("c.yaml", map("c"))]);
    world.reconcile().await;
    assert_eq!(world.reason("Ready"), "Applied");
    assert!(world.exists(&map_path("a")) && world.exists(CLUSTER) && !world.exists(&map_path("c")));
    let requests = world.server.requests();
    let first = requests.iter().position(Logged::is_write).unwrap();
    assert_eq!(requests[first].path, format!("{SYNC}/status"), "the inventory is recorded first");
    for request in &requests {
        let is_object = [map_path("a"), CLUSTER.to_owned()].contains(&request.path);
        assert_eq!(request.user.as_deref(), is_object.then_some(ACCOUNT), "{request:?}");
    }
    let stored = world.server.get(&map_path("a")).unwrap();
    assert_eq!(stored["metadata"]["labels"]["chandler.dev/sync"], "fleet.base");
    let status = world.status();
    assert_eq!(status.inventory.len(), 2);
    assert!(status.inventory.iter().all(|object| !object.uid.is_empty()));
    assert_eq!(status.last_applied.unwrap().revision, "r1");

    let before = world.server.requests().len();
    world.reconcile().await;
    assert_eq!(
        world.server.requests().len(),
        before,
        "an applied revision costs nothing until the interval ends"
    );
}

#[tokio::test]
async fn a_commit_that_does_not_change_the_folder_is_only_recorded() {
    let world = World::pruning();
    let context = world.context();
    world.push("r1", &[("clusters/a.yaml", map("a"))]);
    world.reconcile_in(&context).await;
    let before = world.server.requests().len();
    world.push("r2", &[("clusters/other-name.yaml", map("a")), ("README.md", "text".to_owned())]);
    world.reconcile_in(&context).await;
    let new: Vec<_> = world.server.requests().into_iter().skip(before).map(|request| request.path).collect();
    assert_eq!(new, [format!("{SYNC}/status")]);
    assert_eq!(world.status().last_applied.unwrap().revision, "r2");
}

#[tokio::test]
async fn a_manager_that_is_killed_at_any_write_loses_nothing() {
    let folder = |names: &[&str]| -> Vec<(&'static str, String)> {
        vec![("clusters/all.yaml", names.iter().map(|name| map(name)).collect::<Vec<_>>().join("---\n"))]
    };
    for killed_at in 1..=9 {
        let world = World::pruning();
        for (revision, names) in [("r1", ["a", "b", "c"]), ("r2", ["a", "b", "d"])] {
            world.push(revision, &folder(&names));
            world.server.kill_at(killed_at);
            let context = world.context();
            tokio::select! {
                () = world.reconcile_in(&context) => {}
                () = world.server.killed() => {}
            }
            let recorded = world.status().inventory;
            for name in ["a", "b", "c", "d"].into_iter().filter(|name| world.exists(&map_path(name))) {
                assert!(recorded.iter().any(|object| object.name == name), "{killed_at}: {name} is recorded");
            }
            world.server.live();
            world.reconcile().await;
        }
        assert_eq!(world.reason("Ready"), "Applied", "killed at {killed_at}");
        let found: Vec<_> = ["a", "b", "c", "d"].map(|name| world.exists(&map_path(name))).into();
        assert_eq!(found, [true, true, false, true], "killed at {killed_at}");
        assert_eq!(world.status().inventory.len(), 3, "killed at {killed_at}");
    }
}

#[tokio::test]
async fn a_revision_that_returns_after_a_kill_is_applied_again() {
    let world = World::new(&json!({}));
    let files = |value: &str| vec![("clusters/a.yaml", format!("{}data: {{value: {value}}}\n", map("a")))];
    let value = || world.server.get(&map_path("a")).unwrap()["data"]["value"].clone();
    world.push("r1", &files("one"));
    world.reconcile().await;
    world.push("r2", &files("two"));
    // It is killed after it has written the status and the object.
    world.server.kill_at(2);
    let context = world.context();
    tokio::select! {
        () = world.reconcile_in(&context) => panic!("it is killed"),
        () = world.server.killed() => {}
    }
    world.server.live();
    assert_eq!((world.reason("Ready"), value()), ("Progressing".to_owned(), json!("two")));
    world.push("r1", &files("one"));
    world.reconcile().await;
    assert_eq!((world.reason("Ready"), value()), ("Applied".to_owned(), json!("one")));
}

#[tokio::test]
async fn nothing_changes_when_the_source_is_missing_deleted_renamed_empty_or_half_written() {
    type Files = Vec<(&'static str, String)>;
    let good = || -> Files { vec![("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster())] };
    let rows: [(&str, Option<Files>, &str); 7] = [
        ("missing repository", None, "SourceUnavailable"),
        ("empty repository", Some(vec![]), "InvalidPackage"),
        ("deleted folder", Some(vec![("README.md", String::new())]), "InvalidPackage"),
        ("renamed folder", Some(vec![("clusters-2/a.yaml", map("a"))]), "InvalidPackage"),
        ("empty folder", Some(vec![("clusters/README.md", String::new())]), "InvalidPackage"),
        (
            "empty file",
            Some(vec![("clusters/a.yaml", String::new()), ("clusters/c.yaml", map("c"))]),
            "InvalidPackage",
        ),
        (
            "half-written file",
            Some(vec![("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster()[..60].to_owned())]),
            "InvalidPackage",
        ),
    ];
    for (what, files, reason) in rows {
        let world = World::pruning();
        world.push("r1", &good());
        world.reconcile().await;
        assert_eq!(world.reason("Ready"), "Applied", "{what}");
        let before = world.status();
        if let Some(files) = files {
            world.push("r2", &files);
        } else {
            let failure = Failure::new(Category::SourceUnavailable, "repository not found");
            *world.tree.current.lock() = Err(failure);
        }
        world.reconcile().await;
        assert_eq!(world.reason("Ready"), reason, "{what}");
        assert!(world.exists(&map_path("a")) && world.exists(CLUSTER), "{what}");
        let after = world.status();
        assert_eq!((after.inventory, after.last_applied), (before.inventory, before.last_applied), "{what}");
        assert_eq!(world.server.deletions(), 0, "{what}");
        world.push("r3", &good());
        world.reconcile().await;
        assert_eq!(world.reason("Ready"), "Applied", "{what}: a revert restores");
    }
}

#[tokio::test]
async fn a_removed_cluster_is_held_until_it_is_confirmed_for_the_revision() {
    let world = World::pruning();
    world.push("r1", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster())]);
    world.reconcile().await;
    world.push("r2", &[("clusters/a.yaml", map("a"))]);
    world.reconcile().await;
    assert_eq!((world.reason("Ready"), world.reason("PruneHeld")), ("Applied".to_owned(), "Held".to_owned()));
    assert!(world.exists(CLUSTER));
    assert_eq!(world.status().held[0].name, "blue");
    let confirm = |revision: &str| {
        let mut sync = world.server.get(SYNC).unwrap();
        sync["metadata"]["generation"] = json!(sync["metadata"]["generation"].as_i64().unwrap() + 1);
        sync["spec"]["prune"]["confirm"] = json!({"revision": revision, "objects": [{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "namespace": "fleet", "name": "blue",
        }]});
        world.server.put(SYNC, sync);
    };
    confirm("r1");
    world.reconcile().await;
    assert!(world.exists(CLUSTER), "the confirmation is for another revision");
    confirm("r2");
    world.reconcile().await;
    assert!(!world.exists(CLUSTER));
    assert_eq!((world.reason("PruneHeld"), world.status().inventory.len()), ("NothingHeld".to_owned(), 1));
}

#[tokio::test]
async fn a_branch_that_is_reset_and_another_folder_delete_nothing() {
    let both =
        || vec![("clusters/a.yaml", map("a")), ("clusters/b.yaml", map("b")), ("other/a.yaml", map("a"))];
    for reset in [true, false] {
        let world = World::pruning();
        world.push("r1", &both()[..1]);
        world.reconcile().await;
        world.push("r2", &both());
        world.reconcile().await;
        if reset {
            world.push("r1", &both()[..1]);
        } else {
            let mut sync = world.server.get(SYNC).unwrap();
            sync["metadata"]["generation"] = json!(2);
            sync["spec"]["source"]["path"] = json!("other");
            world.server.put(SYNC, sync);
        }
        // The cause is gone at the second reconcile, and a restart does not forget it.
        for _ in 0..2 {
            world.reconcile().await;
            let expected = if reset { "RevisionAppliedBefore" } else { "SourceChanged" };
            assert_eq!(world.status().held[0].reason, expected);
            assert!(world.exists(&map_path("b")));
            let mut sync = world.server.get(SYNC).unwrap();
            sync["spec"]["interval"] = json!("9m");
            sync["metadata"]["generation"] = json!(3);
            world.server.put(SYNC, sync);
        }
        assert_eq!(world.server.deletions(), 0);
    }
}

#[tokio::test]
async fn an_object_that_another_sync_owns_now_is_not_deleted() {
    let world = World::pruning();
    world.push("r1", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", map("b"))]);
    world.reconcile().await;
    let mut taken = world.server.get(&map_path("b")).unwrap();
    taken["metadata"]["labels"]["chandler.dev/sync"] = json!("fleet.other");
    world.server.put(&map_path("b"), taken);
    world.push("r2", &[("clusters/a.yaml", map("a"))]);
    world.reconcile().await;
    assert!(world.exists(&map_path("b")));
    assert_eq!((world.status().inventory.len(), world.server.deletions()), (1, 0));
}

#[tokio::test]
async fn a_paused_cluster_is_not_written_and_nothing_is_deleted() {
    let world = World::pruning();
    world.push("r1", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster())]);
    world.reconcile().await;
    let mut paused = world.server.get(CLUSTER).unwrap();
    paused["spec"]["paused"] = json!(true);
    world.server.put(CLUSTER, paused.clone());
    world.push("r2", &[("clusters/c.yaml", map("c")), ("clusters/b.yaml", cluster())]);
    world.reconcile().await;
    assert_eq!(world.reason("Ready"), "ClusterPaused");
    assert_eq!(world.server.get(CLUSTER).unwrap()["spec"]["paused"], true);
    assert!(world.exists(&map_path("c")) && world.exists(&map_path("a")));
    paused["spec"]["paused"] = json!(false);
    world.server.put(CLUSTER, paused);
    world.reconcile().await;
    assert_eq!(world.reason("Ready"), "Applied");
    assert!(!world.exists(&map_path("a")));
}

#[tokio::test]
async fn a_paused_cluster_is_deleted_only_when_it_is_not_paused_any_more() {
    let world = World::pruning();
    world.push("r1", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster())]);
    world.reconcile().await;
    let mut paused = world.server.get(CLUSTER).unwrap();
    paused["spec"]["paused"] = json!(true);
    world.server.put(CLUSTER, paused.clone());
    let mut sync = world.server.get(SYNC).unwrap();
    sync["metadata"]["generation"] = json!(2);
    sync["spec"]["prune"]["confirm"] = json!({"revision": "r2", "objects": [{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "namespace": "fleet", "name": "blue",
    }]});
    world.server.put(SYNC, sync);
    world.push("r2", &[("clusters/a.yaml", map("a"))]);
    world.reconcile().await;
    assert!(world.exists(CLUSTER));
    assert_eq!(world.status().held[0].reason, "ClusterPaused");
    // A change of the Cluster enqueues the Syncs that have it in their inventory.
    let id = ObjectId::new("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "blue");
    assert!(has_recorded(&world.sync(), &id));
    paused["spec"]["paused"] = json!(false);
    world.server.put(CLUSTER, paused);
    world.reconcile().await;
    assert!(!world.exists(CLUSTER));
}

#[tokio::test]
async fn a_moved_cluster_is_not_created_again_until_the_sync_is_resumed() {
    for seen_by_watch in [true, false] {
        let world = World::pruning();
        world.push("r1", &[("clusters/b.yaml", cluster())]);
        world.reconcile().await;
        let mut moved = world.server.get(CLUSTER).unwrap();
        moved["metadata"]["annotations"]["clusterctl.cluster.x-k8s.io/delete-for-move"] = json!("");
        world.server.remove(CLUSTER);
        world.push("r2", &[("clusters/b.yaml", cluster()), ("clusters/a.yaml", map("a"))]);
        let context = world.context();
        if seen_by_watch {
            context.moves.on_cluster(&Change::Deleted(&serde_json::from_value(moved).unwrap()));
        }
        world.reconcile_in(&context).await;
        let reason = if seen_by_watch { "Moving" } else { "ClusterMissing" };
        assert_eq!(world.reason("Moving"), reason);
        assert!(!world.exists(CLUSTER) && !world.exists(&map_path("a")));
        world.reconcile().await;
        assert!(!world.exists(CLUSTER), "also after a restart");

        let mut sync = world.server.get(SYNC).unwrap();
        sync["metadata"]["annotations"]["chandler.dev/resumed-at"] = json!("2999-01-01T00:00:00Z");
        world.server.put(SYNC, sync);
        world.reconcile_in(&context).await;
        assert_eq!(
            (world.reason("Moving"), world.reason("Ready")),
            ("NotMoving".to_owned(), "Applied".to_owned())
        );
        assert!(world.exists(CLUSTER) && world.exists(&map_path("a")));
    }
}

#[tokio::test]
async fn a_resumed_sync_notices_the_next_move_also_if_it_was_killed() {
    let world = World::pruning();
    world.push("r1", &[("clusters/b.yaml", cluster())]);
    world.reconcile().await;
    world.server.remove(CLUSTER);
    world.push("r2", &[("clusters/b.yaml", cluster()), ("clusters/a.yaml", map("a"))]);
    world.reconcile().await;
    assert_eq!(world.reason("Moving"), "ClusterMissing");

    let suspended = world.status();
    let suspended = conditions::find(&suspended.conditions, "Moving").unwrap().last_transition_time.0;
    let mut sync = world.server.get(SYNC).unwrap();
    let resumed = suspended.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
    sync["metadata"]["annotations"]["chandler.dev/resumed-at"] = json!(resumed.to_string());
    world.server.put(SYNC, sync);
    // It is killed after it has recorded what it is about to write.
    world.server.kill_at(1);
    let context = world.context();
    tokio::select! {
        () = world.reconcile_in(&context) => panic!("it is killed"),
        () = world.server.killed() => {}
    }
    world.server.live();
    assert_eq!((world.reason("Moving"), world.exists(CLUSTER)), ("NotMoving".to_owned(), false));
    world.reconcile().await;
    assert!(world.exists(CLUSTER), "it is still resumed");

    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    world.server.remove(CLUSTER);
    world.push("r3", &[("clusters/b.yaml", cluster())]);
    for _ in 0..2 {
        world.reconcile().await;
        assert_eq!(world.reason("Moving"), "ClusterMissing", "the next move");
        assert!(!world.exists(CLUSTER));
    }
}

#[tokio::test]
async fn a_deleted_sync_deletes_its_objects_only_if_the_policy_says_so() {
    for (policy, deleted) in [("Orphan", false), ("Prune", true)] {
        let world = World::new(&json!({"deletionPolicy": policy}));
        world.push("r1", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster())]);
        world.reconcile().await;
        let mut sync = world.server.get(SYNC).unwrap();
        assert_eq!(sync["metadata"]["finalizers"] == json!(["sync.chandler.dev"]), deleted, "{policy}");
        sync["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        world.server.put(SYNC, sync);
        world.reconcile().await;
        assert_eq!(world.exists(&map_path("a")), !deleted, "{policy}");
        assert!(world.exists(CLUSTER), "{policy}: a Cluster is deleted only if it is confirmed");
        assert!(world.finalizers().is_empty(), "{policy}");
    }
}

#[tokio::test]
async fn a_sync_that_is_moved_itself_keeps_its_objects() {
    let world = World::new(&json!({"deletionPolicy": "Prune"}));
    world.push("r1", &[("clusters/a.yaml", map("a"))]);
    world.reconcile().await;
    let mut sync = world.server.get(SYNC).unwrap();
    sync["metadata"]["annotations"]["clusterctl.cluster.x-k8s.io/delete-for-move"] = json!("");
    world.server.put(SYNC, sync);
    world.push("r2", &[("clusters/b.yaml", map("b"))]);
    world.reconcile().await;
    assert_eq!(world.reason("Ready"), "Moving");
    assert!(world.exists(&map_path("a")) && !world.exists(&map_path("b")));
    let mut sync = world.server.get(SYNC).unwrap();
    sync["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.server.put(SYNC, sync);
    world.reconcile().await;
    assert!(world.exists(&map_path("a")));
    assert!(world.finalizers().is_empty());
}

#[tokio::test]
async fn a_sync_does_not_keep_its_namespace_from_being_deleted() {
    for deleted in [false, true] {
        let world = World::new(&json!({"deletionPolicy": "Prune"}));
        world.push("r1", &[("clusters/a.yaml", map("a"))]);
        world.reconcile().await;
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}});
        if deleted {
            namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        world.server.put("/api/v1/namespaces/fleet", namespace);
        let mut sync = world.server.get(SYNC).unwrap();
        sync["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        world.server.put(SYNC, sync);
        // The bindings of the account were deleted first.
        world.server.refuse_users();
        world.reconcile().await;
        assert!(world.exists(&map_path("a")));
        let finalizers = world.finalizers();
        assert_eq!(finalizers.is_empty(), deleted, "without a deleted namespace, permissions may come back");
    }
}

#[tokio::test]
async fn a_revision_with_an_object_that_a_tenancy_does_not_allow_changes_nothing() {
    let mut world = World::new(&json!({}));
    let mut tenancy = DynamicObject::new("team", &crate::tenancies::resource());
    tenancy.data = json!({"spec": {
        "namespaces": {"names": ["fleet"]}, "kinds": {"denied": [{"group": "cluster.x-k8s.io", "kind": "*"}]},
    }});
    world.tenancies.push(Arc::new(tenancy));
    world.push("r1", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster())]);
    world.reconcile().await;
    assert_eq!(world.reason("Ready"), "NotAllowed");
    assert!(!world.exists(&map_path("a")) && !world.exists(CLUSTER));
    let message = conditions::find(&world.status().conditions, "Ready").unwrap().message.clone();
    assert!(message.contains("AddonTenancy team") && message.contains("spec.kinds.denied"), "{message}");
    world.push("r2", &[("clusters/a.yaml", map("a"))]);
    world.reconcile().await;
    assert_eq!(world.reason("Ready"), "Applied");
    world.push("r3", &[("clusters/a.yaml", map("a")), ("clusters/b.yaml", cluster())]);
    world.reconcile().await;
    assert!(world.exists(&map_path("a")), "what was applied is kept");
    world.tenancies.clear();
    world.reconcile().await;
    assert!(world.exists(CLUSTER), "without the tenancy everything is allowed");
}
