//! Files that move between the directories of two Syncs, or disappear from them: no add-on is uninstalled.

use std::time::Duration;

use chandler_api::addons::Timeout;
use chandler_api::extensions::{ExtensionInstance, Source, SourceSpec, SyncObject, SyncStatus};
use chandler_e2e::{
    extension_world::{ExtensionWorld, is_ready},
    git_repository::{Repository, map as bundle_map, wait_revision},
    sync_world::{NAMESPACE, SyncWorld, deployer, map, ready_message},
    wait::{eventually, eventually_within, until},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

/// A moved object belongs to its new Sync within this time after the commit was read.
const HAND_OVER: Duration = Duration::from_secs(10);
const SYNCS: [&str; 2] = ["older", "younger"];
/// The kinds of the objects that are moved. All of them have this name.
const KINDS: [(&str, &str); 4] = [
    ("chandler.dev/v1alpha1", "ExtensionInstance"),
    ("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy"),
    ("chandler.dev/v1alpha1", "Source"),
    ("v1", "ConfigMap"),
];
const NAME: &str = "moved";

fn label(object: &DynamicObject) -> Option<&str> {
    object.metadata.labels.as_ref()?.get("chandler.dev/sync").map(String::as_str)
}

/// Two Syncs of one repository. Each of them would delete placements.
struct Moves {
    test: ExtensionWorld,
    repository: Repository,
}

impl Moves {
    async fn new() -> Self {
        let test = ExtensionWorld::new("moved-files").await;
        let repository = Repository::new(&test).await;
        for object in &deployer(&test.world.namespace) {
            test.world.apply(object).await;
        }
        Self { test, repository }
    }

    async fn apply_sync(&self, name: &str) {
        let sync = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": name, "namespace": self.test.world.namespace},
            "spec": {
                "source": {"sourceRef": {"name": "apps"}, "path": name}, "serviceAccountName": "deployer",
                "prune": {"enabled": true, "deletePlacements": true},
            },
        });
        self.test.world.apply(&sync).await;
    }

    /// Returns the files of the first commit: everything is in the directory of the older Sync.
    fn files(&self) -> Vec<(String, String)> {
        let selector = json!({"matchLabels": {"fleet": "test"}});
        let specs = [
            json!({
                "source": {"sourceRef": {"name": "apps"}, "path": "maps"},
                "release": {"namespace": "default"}, "clusters": {"selector": selector},
            }),
            json!({
                "clusterSelector": selector, "repoURL": self.test.world.repository.url(), "chartName": "hello",
                "version": "1.0.0", "releaseName": "hello", "namespace": "default",
                "tlsConfig": {"caSecret": {"name": "ca"}},
            }),
            json!({"git": {"url": "https://127.0.0.1:1/none"}, "suspend": true}),
        ];
        let object = |(version, kind): (&str, &str), spec: Option<&Value>| {
            let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}});
            object.as_object_mut().unwrap().extend(spec.map(|spec| ("spec".to_owned(), spec.clone())));
            (format!("older/{kind}.json"), object.to_string())
        };
        let moved = KINDS.into_iter().enumerate().map(|(number, kind)| object(kind, specs.get(number)));
        let own = SYNCS.map(|name| (format!("{name}/own.yaml"), bundle_map(&format!("own-{name}"), "1")));
        moved.chain(own).chain([("maps/a.yaml".to_owned(), bundle_map("a", "1"))]).collect()
    }

    async fn moved(&self) -> Vec<DynamicObject> {
        let mut found = Vec::new();
        for (version, kind) in KINDS {
            let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
            let kind = GroupVersionKind::gvk(group, version, kind);
            let plural = match &*kind.kind {
                "HelmChartProxy" => "helmchartproxies".to_owned(),
                kind => format!("{}s", kind.to_lowercase()),
            };
            let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
            let world = &self.test.world;
            let objects: Api<DynamicObject> =
                Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
            found.extend(objects.get_opt(NAME).await.unwrap());
        }
        found
    }

    async fn uids(&self) -> Vec<String> {
        let moved = self.moved().await;
        assert!(moved.iter().all(|object| object.metadata.deletion_timestamp.is_none()), "{moved:?}");
        moved.into_iter().filter_map(|object| object.metadata.uid).collect()
    }

    async fn status(&self, sync: &str) -> Option<SyncStatus> {
        let world = &self.test.world;
        let syncs: Api<SyncObject> = Api::namespaced(world.client.clone(), &world.namespace);
        syncs.get(sync).await.unwrap().status
    }

    /// Waits until a Sync has applied a commit and holds nothing. Returns the number of its objects.
    async fn wait_applied(&self, sync: &str, commit: &str) -> usize {
        eventually(&format!("Sync {sync} has applied {commit}"), || async {
            let status = self.status(sync).await?;
            let applied = status.last_applied.as_ref().is_some_and(|last| last.revision == commit);
            let ready = status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
            (applied && ready && status.held.is_empty()).then_some(status.inventory.len())
        })
        .await
    }

    /// Waits until all moved objects belong to a Sync.
    async fn wait_owner(&self, sync: &str) {
        let owner = format!("{}.{sync}", self.test.world.namespace);
        eventually_within(HAND_OVER, &format!("the objects belong to {owner}"), || async {
            let objects = self.moved().await;
            (objects.len() == 4 && objects.iter().all(|object| label(object) == Some(&*owner))).then_some(())
        })
        .await;
    }

    /// Waits until both add-ons are ready. Returns the uids of their release objects.
    async fn wait_ready(&self) -> [Option<String>; 2] {
        self.test.world.wait_ready(NAME, "alpha", 1).await;
        until("the add-on is ready", async || {
            let all = self.test.releases().list(&ListParams::default()).await.unwrap();
            all.items.iter().any(is_ready)
        })
        .await;
        let all = self.test.releases().list(&ListParams::default()).await.unwrap();
        let hello = self.test.world.release(NAME, "alpha").await.unwrap();
        [all.items[0].metadata.uid.clone(), hello.metadata.uid]
    }

    fn revisions(&self, alpha: &Plane) -> [usize; 2] {
        ["hello", NAME].map(|release| self.test.world.history(alpha, release).len())
    }
}

#[tokio::test]
async fn a_moved_file_is_handed_over() {
    let moves = Box::pin(Moves::new()).await;
    let alpha = moves.test.world.create_cluster("alpha").await;
    let manager = moves.test.world.start_manager();
    let files = moves.files();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let first = moves.repository.push(&files).await;
    for name in SYNCS {
        moves.apply_sync(name).await;
        moves.wait_applied(name, &first).await;
    }
    let (uids, releases) = (moves.uids().await, moves.wait_ready().await);
    assert_eq!((uids.len(), moves.revisions(&alpha)), (4, [1, 1]));

    for [from, to] in [["older", "younger"], ["younger", "older"]] {
        for (_, kind) in KINDS {
            let [from, to] = [from, to].map(|sync| format!("{sync}/{kind}.json"));
            moves.repository.tree.git(&["mv", &from, &to]).await.unwrap();
        }
        let commit = moves.repository.push(&[]).await;
        wait_revision(&moves.test, &commit).await;
        moves.wait_owner(to).await;
        assert_eq!(moves.uids().await, uids, "{from} to {to}");
        let inventories = [moves.wait_applied(from, &commit).await, moves.wait_applied(to, &commit).await];
        assert_eq!(inventories, [1, 5], "{from} to {to}");
    }

    // All files move, so that the directory does not exist any more.
    for file in KINDS.map(|(_, kind)| format!("{kind}.json")).into_iter().chain(["own.yaml".to_owned()]) {
        let [from, to] = [format!("older/{file}"), format!("younger/from-{file}")];
        moves.repository.tree.git(&["mv", &from, &to]).await.unwrap();
    }
    let commit = moves.repository.push(&[]).await;
    wait_revision(&moves.test, &commit).await;
    moves.wait_owner("younger").await;
    assert_eq!(moves.wait_applied("younger", &commit).await, 6);
    manager.wait_idle().await;
    assert_eq!(moves.uids().await, uids);
    assert_eq!((moves.wait_ready().await, moves.revisions(&alpha)), (releases, [1, 1]));
}

/// Returns the source of a Sync of a directory of a Source.
fn directory(source: &str, path: &str) -> Value {
    json!({"sourceRef": {"name": source}, "path": path})
}

#[tokio::test]
async fn what_leaves_a_directory_is_kept_for_its_reasons() {
    let world = Box::pin(SyncWorld::new("kept-files")).await;
    let _manager = world.start_manager();
    Box::pin(receivers_that_cannot_take_over(&world)).await;
    Box::pin(placements(&world)).await;
}

#[tokio::test]
async fn syncs_begin_and_end_beside_others() {
    let world = Box::pin(SyncWorld::new("beside-syncs")).await;
    let _manager = world.start_manager();
    Box::pin(giver_that_is_deleted(&world)).await;
    Box::pin(syncs_of_the_same_age(&world)).await;
}

fn owner(map: &ConfigMap) -> Option<&str> {
    map.metadata.labels.as_ref()?.get("chandler.dev/sync").map(String::as_str)
}

/// A Sync that is deleted with its objects right after the push that moves one of them.
async fn giver_that_is_deleted(world: &SyncWorld) {
    let own = |sync: &str| (format!("{sync}/own.yaml"), map(&format!("own-{sync}"), "one"));
    let push = async |files: Vec<(String, String)>| {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        world.push(&files).await
    };
    let moving = |sync: &str| (format!("{sync}/moving.yaml"), map("moving", "one"));
    let first = push(vec![own("leaving"), own("staying"), moving("leaving")]).await;
    let prune = json!({"source": directory("git", "leaving"), "deletionPolicy": "Prune"});
    world.apply_named_sync("leaving", &prune).await;
    world.apply_named_sync("staying", &json!({"source": directory("git", "staying")})).await;
    for name in ["leaving", "staying"] {
        world.wait_sync(name, "Ready", "Applied", Some(&first)).await;
    }
    let maps: Api<ConfigMap> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    let uid = maps.get("moving").await.unwrap().metadata.uid;
    push(vec![own("leaving"), own("staying"), moving("staying")]).await;
    world.syncs().delete("leaving", &DeleteParams::default()).await.unwrap();
    eventually("the Sync is deleted", || async {
        world.syncs().get_opt("leaving").await.unwrap().is_none().then_some(())
    })
    .await;
    eventually("what has stayed is deleted", || async {
        maps.get_opt("own-leaving").await.unwrap().is_none().then_some(())
    })
    .await;
    eventually("the object belongs to the other Sync", || async {
        let moving = maps.get("moving").await.unwrap();
        (owner(&moving) == Some("default.staying")).then_some(())
    })
    .await;
    assert_eq!(maps.get("moving").await.unwrap().metadata.uid, uid);
}

/// Two Syncs that begin at the same time with the same object: the older one, or the first by name, keeps it.
async fn syncs_of_the_same_age(world: &SyncWorld) {
    let pairs = ["one", "two", "three", "four"];
    let files = pairs.iter().flat_map(|pair| {
        ["a", "b"].map(|sync| (format!("{pair}-{sync}/map.yaml"), map(&format!("shared-{pair}"), sync)))
    });
    let files: Vec<_> = files.collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    world.push(&files).await;
    for pair in pairs {
        for sync in ["a", "b"] {
            let name = format!("{pair}-{sync}");
            world.apply_named_sync(&name, &json!({"source": directory("git", &name)})).await;
        }
    }
    let maps: Api<ConfigMap> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    for pair in pairs {
        world.wait_sync(&format!("{pair}-a"), "Ready", "Applied", None).await;
        world.wait_sync(&format!("{pair}-b"), "Ready", "Conflict", None).await;
        let shared = maps.get(&format!("shared-{pair}")).await.unwrap();
        assert_eq!(owner(&shared), Some(&*format!("default.{pair}-a")));
    }
}

/// The Syncs that get a file of the Sync `giver`.
const RECEIVERS: [&str; 5] = ["suspended", "invalid", "forbidden", "another-source", "unreadable"];

/// Returns the files of `giver` and of the receivers. A ConfigMap with the name of each receiver is in the
/// directory of `giver` or in that of the receiver; some of the receivers have a bad file.
fn moved_files(in_giver: bool, with_bad: bool) -> Vec<(String, String)> {
    let path = |name: &str| {
        if in_giver { format!("giver/{name}.yaml") } else { format!("{name}/moved.yaml") }
    };
    let mut files: Vec<_> = RECEIVERS.iter().map(|name| (path(name), map(name, "one"))).collect();
    files.extend(RECEIVERS.map(|name| (format!("{name}/own.yaml"), map(&format!("own-{name}"), "one"))));
    files.push(("giver/own.yaml".to_owned(), map("own", "one")));
    if with_bad {
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: 7}\n";
        files.push(("invalid/bad.yaml".to_owned(), service.to_owned()));
        files.push(("unreadable/bad.yaml".to_owned(), "kind: [Conf".to_owned()));
    }
    files
}

/// An object is kept while the Sync that it has moved to cannot take it over. Both Syncs say why.
async fn receivers_that_cannot_take_over(world: &SyncWorld) {
    // The Sync that receives an object of its name, its fields, and what its message contains.
    let suspended = json!({"source": directory("git", "suspended"), "suspend": true});
    let rows = [
        ("suspended", suspended, "Suspended", "spec.suspend is set"),
        ("invalid", json!({"source": directory("git", "invalid")}), "", "bad.yaml:1: Service default/bad"),
        (
            "forbidden",
            json!({"source": directory("git", "forbidden"), "serviceAccountName": "reader"}),
            "Forbidden",
            "system:serviceaccount:default:reader",
        ),
    ];
    let sources: Api<Source> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    // It would see a commit long after the other one.
    let other = SourceSpec { interval: Timeout("10m".to_owned()), ..sources.get("git").await.unwrap().spec };
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "reader", "namespace": NAMESPACE},
        }),
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": "other", "namespace": NAMESPACE}, "spec": other,
        }),
    ];
    for object in &objects {
        world.apply(object).await;
    }
    let push = async |files: Vec<(String, String)>| {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        world.push(&files).await
    };
    let first = push(moved_files(true, false)).await;
    world.apply_named_sync("giver", &json!({"source": directory("git", "giver")})).await;
    world.wait_sync("giver", "Ready", "Applied", Some(&first)).await;
    for (name, fields, ..) in &rows {
        world.apply_named_sync(name, fields).await;
    }
    world.apply_named_sync("another-source", &json!({"source": directory("other", "another-source")})).await;
    world.apply_named_sync("unreadable", &json!({"source": directory("git", "unreadable")})).await;
    for name in ["invalid", "another-source", "unreadable"] {
        world.wait_sync(name, "Ready", "Applied", Some(&first)).await;
    }
    let maps: Api<ConfigMap> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    let uids = async || {
        let mut found = Vec::new();
        for name in RECEIVERS {
            found.push(maps.get_opt(name).await.unwrap().and_then(|map| map.metadata.uid));
        }
        found
    };
    let created = uids().await;

    let second = push(moved_files(false, true)).await;
    eventually("the objects are kept, and both Syncs say why", || async {
        let giver = world.syncs().get("giver").await.unwrap().status?;
        let held = |name: &str| giver.held.iter().find(|held| held.name == name);
        for (name, _, state, message) in &rows {
            let held = held(name).filter(|held| held.reason == "WantedBySync")?;
            let receiver = world.syncs().get(name).await.unwrap().status?;
            let expected = [message, &*format!("Sync default/giver keeps ConfigMap default/{name}")];
            let is_reported = expected.iter().all(|text| ready_message(&receiver).contains(text));
            (held.sync == format!("default/{name}") && held.message.contains(state) && is_reported)
                .then_some(())?;
        }
        held("unreadable").filter(|held| held.reason == "SyncNotRendered")?;
        // Only the one that reads the object from another Source takes it over.
        (giver.revision.as_deref() == Some(&*second) && giver.held.len() == 4).then_some(())
    })
    .await;
    assert_eq!(uids().await, created);

    // The causes end, and the objects are handed over.
    world.apply_named_sync("suspended", &json!({"source": directory("git", "suspended")})).await;
    world.apply_named_sync("forbidden", &json!({"source": directory("git", "forbidden")})).await;
    let third = push(moved_files(false, false)).await;
    world.wait_sync("giver", "PruneHeld", "NothingHeld", Some(&third)).await;
    assert_eq!(uids().await, created, "nothing was deleted");
    for name in RECEIVERS {
        let owner = maps.get(name).await.unwrap().metadata.labels.unwrap_or_default();
        assert_eq!(owner.get("chandler.dev/sync").map(String::as_str), Some(&*format!("default.{name}")));
    }
}

/// A placement that is lost in the repository is kept, unless the Sync says that placements are deleted, too.
async fn placements(world: &SyncWorld) {
    let instances: Api<ExtensionInstance> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    let instance = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance", "metadata": {"name": "lost"},
        "spec": {
            "source": {"sourceRef": {"name": "git"}, "path": "none"}, "release": {"namespace": "default"},
            "clusters": {"selector": {"matchLabels": {"none": "none"}}},
        },
    });
    let own = || ("lost/own.yaml", map("own-lost", "one"));
    let first =
        world.push(&[own(), ("lost/a.yaml", map("a", "one")), ("lost/i.json", instance.to_string())]).await;
    world.apply_named_sync("lost", &json!({"source": directory("git", "lost")})).await;
    world.wait_sync("lost", "Ready", "Applied", Some(&first)).await;
    let second = world.push(&[own()]).await;
    let status = world.wait_sync("lost", "PruneHeld", "Held", Some(&second)).await;
    let held: Vec<_> = status.held.iter().map(|held| (&*held.kind, &*held.reason)).collect();
    assert_eq!(held, [("ExtensionInstance", "ProtectedPlacement")]);
    assert_eq!(world.value("a").await, None, "everything else is deleted");
    assert!(instances.get("lost").await.unwrap().metadata.deletion_timestamp.is_none());

    let prune = json!({"enabled": true, "deletePlacements": true});
    world.apply_named_sync("lost", &json!({"source": directory("git", "lost"), "prune": prune})).await;
    world.wait_sync("lost", "PruneHeld", "NothingHeld", Some(&second)).await;
    eventually("the instance is deleted", || async {
        instances.get_opt("lost").await.unwrap().is_none().then_some(())
    })
    .await;
}
