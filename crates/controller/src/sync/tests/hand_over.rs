//! Files that move between the directories of two Syncs.

use std::sync::atomic::Ordering;

use super::*;

/// A Sync of the directory with its name.
struct Named<'a> {
    namespace: &'a str,
    name: &'a str,
    created: &'a str,
}

const OLDER: Named<'_> = Named { namespace: "fleet", name: "older", created: "2026-01-01T00:00:00Z" };
const YOUNGER: Named<'_> = Named { namespace: "fleet", name: "younger", created: "2026-01-02T00:00:00Z" };
const TEAM: Named<'_> = Named { namespace: "team", name: "team", created: "2026-01-03T00:00:00Z" };

impl Named<'_> {
    fn path(&self) -> String {
        format!("/apis/chandler.dev/v1alpha1/namespaces/{}/syncs/{}", self.namespace, self.name)
    }

    fn label(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }
}

impl World {
    fn of(syncs: &[&Named<'_>]) -> Self {
        let mut world = Self::new(&json!({}));
        world.syncs.clear();
        world.server.remove(SYNC);
        for sync in syncs {
            world.syncs.push(sync.path());
            world.server.put(
                &sync.path(),
                json!({
                    "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
                    "metadata": {
                        "name": sync.name, "namespace": sync.namespace, "generation": 1,
                        "creationTimestamp": sync.created,
                    },
                    "spec": {
                        "source": {"sourceRef": {"name": "git", "scope": "Platform"}, "path": sync.name},
                        "serviceAccountName": "deployer", "prune": {"enabled": true},
                    },
                }),
            );
        }
        world
    }

    /// Changes a field of the spec.
    fn set(&self, sync: &Named<'_>, field: &str, value: Value) {
        let mut object = self.server.get(&sync.path()).unwrap();
        let generation = object["metadata"]["generation"].as_i64().unwrap() + 1;
        object["metadata"]["generation"] = generation.into();
        object["spec"][field] = value;
        self.server.put(&sync.path(), object);
    }

    /// Reconciles Syncs, each with a manager that has just started.
    async fn reconcile_all(&self, syncs: &[&Named<'_>]) {
        for sync in syncs {
            let context = self.context();
            let Some(object) = self.server.get(&sync.path()) else { continue };
            let object: SyncObject = serde_json::from_value(object).unwrap();
            tokio::select! {
                result = reconciler::reconcile(Arc::new(object), context) => { result.unwrap(); }
                () = self.server.killed() => self.server.live(),
            }
        }
    }

    fn status_of(&self, sync: &Named<'_>) -> SyncStatus {
        let object: SyncObject = serde_json::from_value(self.server.get(&sync.path()).unwrap()).unwrap();
        object.status.unwrap_or_default()
    }

    fn uid_of(&self, sync: &Named<'_>) -> String {
        self.server.get(&sync.path()).unwrap()["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    fn message_of(&self, sync: &Named<'_>, type_: &str) -> String {
        conditions::find(&self.status_of(sync).conditions, type_).unwrap().message.clone()
    }

    /// Returns the reasons and Syncs of the objects that a Sync holds.
    fn held(&self, sync: &Named<'_>) -> Vec<(String, String)> {
        self.status_of(sync).held.into_iter().map(|held| (held.reason, held.sync)).collect()
    }

    /// Returns the uid and the owner of the ConfigMap `moved`.
    fn moved(&self) -> Option<(Value, Value)> {
        let object = self.server.get(&map_path("moved"))?;
        let label = object["metadata"]["labels"]["chandler.dev/sync"].clone();
        Some((object["metadata"]["uid"].clone(), label))
    }

    /// Sets the owner of the ConfigMap `moved`.
    fn set_owner(&self, sync: &Named<'_>) {
        let mut object = self.server.get(&map_path("moved")).unwrap();
        object["metadata"]["labels"]["chandler.dev/sync"] = json!(sync.label());
        self.server.put(&map_path("moved"), object);
    }

    /// Pushes a commit with the ConfigMap `moved` in these directories, and another one in each.
    fn push_moved(&self, revision: &str, syncs: &[&Named<'_>], with: &[&Named<'_>]) {
        let directory = |sync: &Named<'_>| {
            let own = map(&format!("own-{}", sync.name));
            let file = format!("{}/a.yaml", sync.name);
            if with.iter().any(|with| with.name == sync.name) {
                let moved =
                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moved, namespace: fleet}\n---\n";
                (file, format!("{moved}{own}"))
            } else {
                (file, own)
            }
        };
        let files: Vec<_> = syncs.iter().map(|sync| directory(sync)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        self.push(revision, &files);
    }
}

#[tokio::test]
async fn a_moved_object_is_handed_over_whatever_happens() {
    let both = [&OLDER, &YOUNGER];
    for (giver, receiver) in [(&OLDER, &YOUNGER), (&YOUNGER, &OLDER)] {
        for order in [[giver, receiver], [receiver, giver]] {
            for killed_at in 0..=6 {
                let world = World::of(&both);
                world.push_moved("r1", &both, &[giver]);
                world.reconcile_all(&order).await;
                let (uid, label) = world.moved().unwrap();
                assert_eq!(label, giver.label());

                world.push_moved("r2", &both, &[receiver]);
                if killed_at > 0 {
                    world.server.kill_at(killed_at);
                }
                for _ in 0..3 {
                    world.reconcile_all(&order).await;
                }
                let row =
                    format!("{} to {}, {} first, {killed_at}", giver.name, receiver.name, order[0].name);
                assert_eq!(world.moved(), Some((uid, json!(receiver.label()))), "{row}");
                assert_eq!(world.server.deletions(), 0, "{row}");
                for sync in both {
                    let status = world.status_of(sync);
                    assert!(
                        conditions::is_true(&status.conditions, "Ready") && status.held.is_empty(),
                        "{row}"
                    );
                    let has = status.inventory.iter().any(|object| object.name == "moved");
                    assert_eq!(has, sync.name == receiver.name, "{row}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_object_that_is_handed_over_during_a_run_is_not_held() {
    let both = [&OLDER, &YOUNGER];
    let world = World::of(&both);
    world.push_moved("r1", &both, &[&OLDER]);
    world.reconcile_all(&both).await;
    world.push_moved("r2", &both, &[&YOUNGER]);
    world.reconcile_all(&[&YOUNGER]).await;
    assert_eq!(world.moved().unwrap().1, json!(YOUNGER.label()));
    // The older Sync has read the object before the other one took it over.
    world.set_owner(&OLDER);
    let context = world.context();
    for (owner, held) in [(&OLDER, 1), (&YOUNGER, 0)] {
        world.set_owner(owner);
        let older = serde_json::from_value(world.server.get(&OLDER.path()).unwrap()).unwrap();
        reconciler::reconcile(Arc::new(older), context.clone()).await.unwrap();
        assert_eq!(world.held(&OLDER).len(), held, "{}", owner.name);
    }
}

#[tokio::test]
async fn a_directory_whose_files_have_all_moved_is_handed_over() {
    let both = [&OLDER, &YOUNGER];
    let world = World::of(&both);
    world.push_moved("r1", &both, &[&OLDER]);
    world.reconcile_all(&both).await;
    let (uid, _) = world.moved().unwrap();
    // git has no empty directories, but the older one may keep a file that is no manifest.
    for (revision, restored, is_missing) in [("r2", "r3", true), ("r4", "r5", false)] {
        let moved = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moved, namespace: fleet}\n".to_owned();
        let mut files = vec![("younger/a.yaml", moved), ("younger/b.yaml", map("own-younger"))];
        if !is_missing {
            files.push(("older/README.md", "text".to_owned()));
        }
        world.push(revision, &files);
        world.reconcile_all(&both).await;
        assert_eq!(world.moved(), Some((uid.clone(), json!(YOUNGER.label()))), "{revision}");
        assert!(world.message_of(&OLDER, "Ready").contains("nothing is changed"), "{revision}");
        world.push_moved(restored, &both, &[&OLDER]);
        world.reconcile_all(&both).await;
        assert_eq!(world.moved(), Some((uid.clone(), json!(OLDER.label()))), "{restored}");
    }

    // The path of the older Sync is a mistake.
    world.set(&OLDER, "source", json!({"sourceRef": {"name": "git", "scope": "Platform"}, "path": "oldre"}));
    world.push_moved("r6", &both, &both);
    world.reconcile_all(&both).await;
    assert_eq!(world.moved().unwrap().1, json!(OLDER.label()));
    assert_eq!(world.server.deletions(), 0);
}

#[tokio::test]
async fn an_object_is_kept_until_the_other_sync_can_take_it_over() {
    let both = [&OLDER, &YOUNGER];
    // What the receiver has, the reason of the giver, and whether the object is kept.
    let rows = [
        ("suspended", "WantedBySync", true),
        ("waiting", "WantedBySync", true),
        ("broken, with the name", "SyncNotRendered", true),
        ("broken, without the name", "", false),
        ("without prune", "WantedBySync", true),
    ];
    for (what, reason, kept) in rows {
        let world = World::of(&both);
        world.push_moved("r1", &both, &[&OLDER]);
        world.reconcile_all(&both).await;
        world.push_moved("r2", &both, &[&YOUNGER]);
        let broken = |with: &[&Named<'_>], text: &str| {
            world.push_moved("r2", &both, with);
            let mut files = world.tree.current.lock().clone().unwrap().files.clone();
            files.insert("younger/b.yaml".to_owned(), Bytes::from(format!("kind: [{text}")));
            *world.tree.current.lock() = Ok(Arc::new(SourceTree { revision: "r2".to_owned(), files }));
        };
        match what {
            "suspended" => world.set(&YOUNGER, "suspend", json!(true)),
            "waiting" => world.set(&YOUNGER, "dependsOn", json!(["missing"])),
            "broken, with the name" => broken(&[&YOUNGER], "text"),
            "broken, without the name" => broken(&[], "text"),
            _ => {
                world.set(&OLDER, "prune", json!({"enabled": false}));
                world.set(&YOUNGER, "suspend", json!(true));
            }
        }
        for _ in 0..3 {
            world.reconcile_all(&both).await;
        }
        assert_eq!(world.moved().is_some(), kept, "{what}");
        let held: Vec<_> =
            if kept { vec![(reason.to_owned(), "fleet/younger".to_owned())] } else { Vec::new() };
        assert_eq!(world.held(&OLDER), held, "{what}");
        if reason == "WantedBySync" {
            let message = world.message_of(&OLDER, "PruneHeld");
            assert!(message.contains("the directory of Sync fleet/younger ("), "{what}: {message}");
            let message = world.message_of(&YOUNGER, "Ready");
            assert!(message.contains("Sync fleet/older keeps ConfigMap fleet/moved"), "{what}: {message}");
        }
        // The cause is removed.
        world.set(&YOUNGER, "suspend", json!(false));
        world.set(&YOUNGER, "dependsOn", json!([]));
        world.push_moved("r3", &both, if kept { &[&YOUNGER] } else { &[] });
        for _ in 0..3 {
            world.reconcile_all(&both).await;
        }
        let owner = kept.then(|| json!(YOUNGER.label()));
        assert_eq!(world.moved().map(|(_, label)| label), owner, "{what}");
        assert_eq!(
            (world.held(&OLDER), world.server.deletions()),
            (Vec::new(), usize::from(!kept)),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_sync_that_the_same_commit_creates_gets_its_objects() {
    // The giver applies a Sync of another directory itself, or gets another directory from its parent.
    for name in ["child", "older"] {
        let world = World::of(&[&OLDER]);
        world.push_moved("r1", &[&OLDER], &[&OLDER]);
        world.reconcile_all(&[&OLDER]).await;
        let child = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync", "metadata": {"name": name, "namespace": "fleet"},
            "spec": {
                "source": {"sourceRef": {"name": "git", "scope": "Platform"}, "path": "child"},
                "serviceAccountName": "deployer",
            },
        });
        let files = [
            ("older/a.yaml", map("own-older")),
            ("older/child.yaml", format!("{child}\n")),
            ("child/x.yaml", map("moved")),
        ];
        world.push("r2", &files);
        world.reconcile_all(&[&OLDER]).await;
        assert!(world.moved().is_some(), "{name}");
        let sync = format!("fleet/{name}");
        assert_eq!(world.held(&OLDER), [("WantedBySync".to_owned(), sync)]);
    }
}

#[tokio::test]
async fn a_deleted_sync_leaves_what_another_one_wants() {
    let both = [&OLDER, &YOUNGER];
    let world = World::of(&both);
    world.set(&OLDER, "deletionPolicy", json!("Prune"));
    world.push_moved("r1", &both, &[&OLDER, &YOUNGER]);
    world.reconcile_all(&both).await;
    assert!(world.message_of(&YOUNGER, "Ready").contains("belongs to Sync fleet/older"));
    let mut deleted = world.server.get(&OLDER.path()).unwrap();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.server.put(&OLDER.path(), deleted);
    world.reconcile_all(&both).await;
    assert!(world.server.get(&OLDER.path()).is_none() && !world.exists(&map_path("own-older")));
    assert_eq!(world.moved().unwrap().1, json!(YOUNGER.label()));
}

/// Two Syncs of different Sources, of which the older one has the object `moved`.
async fn of_two_sources() -> World {
    let world = World::of(&[&OLDER, &YOUNGER]);
    world.set(&OLDER, "deletionPolicy", json!("Prune"));
    world.set(&YOUNGER, "source", json!({"sourceRef": {"name": "other"}, "path": "younger"}));
    world.push_moved("r1", &[&OLDER, &YOUNGER], &[&OLDER]);
    world.reconcile_all(&[&OLDER, &YOUNGER]).await;
    world
}

/// What polls return, and whether the objects are kept.
fn polls() -> Vec<(&'static str, Result<bool, Failure>, bool)> {
    let unreachable = Failure::new(Category::SourceUnavailable, "Source fleet/other cannot be read");
    vec![("polled", Ok(true), false), ("suspended", Ok(false), true), ("unreachable", Err(unreachable), true)]
}

#[tokio::test]
async fn a_source_whose_newest_revision_is_not_known_may_contain_the_object() {
    for (what, polled, kept) in polls() {
        let (world, is_failure) = (of_two_sources().await, polled.is_err());
        *world.tree.polled.lock() = polled;
        world.push_moved("r2", &[&OLDER, &YOUNGER], &[]);
        let (context, older) = (world.context(), world.server.get(&OLDER.path()).unwrap());
        reconciler::reconcile(Arc::new(serde_json::from_value(older).unwrap()), context.clone())
            .await
            .unwrap();
        assert_eq!(world.moved().is_some(), kept, "{what}");
        let held = kept.then(|| ("SyncNotRendered".to_owned(), "fleet/younger".to_owned()));
        assert_eq!(world.held(&OLDER), held.into_iter().collect::<Vec<_>>(), "{what}");
        let uid = world.uid_of(&OLDER);
        assert_eq!(
            context.runs.last(&uid).unwrap().poll.failures.is_some(),
            is_failure,
            "{what}: it is retried"
        );
        if kept {
            let (message, why) = (
                world.message_of(&OLDER, "PruneHeld"),
                if is_failure { "other cannot be read" } else { "suspended" },
            );
            assert!(message.contains(why), "{what}: {message}");
            *world.tree.polled.lock() = Ok(true);
            world.reconcile_all(&[&OLDER]).await;
            assert!(world.moved().is_none() && world.held(&OLDER).is_empty(), "{what}");
        }
    }
}

#[tokio::test]
async fn a_deleted_sync_waits_for_a_source_that_cannot_be_read() {
    for (what, polled, kept) in polls() {
        let (world, waits) = (of_two_sources().await, kept);
        *world.tree.polled.lock() = polled;
        let mut deleted = world.server.get(&OLDER.path()).unwrap();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        world.server.put(&OLDER.path(), deleted);
        let context = world.context();
        let reconcile = async || {
            let Some(object) = world.server.get(&OLDER.path()) else { return };
            reconciler::reconcile(Arc::new(serde_json::from_value(object).unwrap()), context.clone())
                .await
                .unwrap();
        };
        reconcile().await;
        assert_eq!(world.moved().is_some(), kept, "{what}");
        assert_eq!(world.server.get(&OLDER.path()).is_some(), waits, "{what}");
        if waits {
            let message = world.message_of(&OLDER, "Ready");
            assert!(
                message.contains("it is not known whether") && message.contains("fleet/younger"),
                "{message}"
            );
            assert!(message.contains("deletionPolicy: Orphan"), "{message}");
            let before = world.server.requests().len();
            reconcile().await;
            assert_eq!(world.server.requests().len(), before, "nothing is done until the retry is due");
            *world.tree.polled.lock() = Ok(true);
            world.reconcile_all(&[&OLDER]).await;
            assert!(world.moved().is_none() && world.server.get(&OLDER.path()).is_none());
        }
    }
}

/// A poll may take long.
#[tokio::test]
async fn a_sync_that_is_created_during_a_poll_gets_its_objects() {
    const THIRD: Named<'_> = Named { namespace: "fleet", name: "third", created: "2026-01-04T00:00:00Z" };
    let world = World::of(&[&OLDER, &THIRD]);
    world.set(&OLDER, "deletionPolicy", json!("Prune"));
    world.set(&THIRD, "source", json!({"sourceRef": {"name": "other"}, "path": "third"}));
    let all = [&OLDER, &THIRD, &YOUNGER];
    world.push_moved("r1", &all, &[&OLDER]);
    world.reconcile_all(&[&OLDER]).await;
    world.push_moved("r2", &all, &[&YOUNGER]);
    let mut created = world.server.get(&THIRD.path()).unwrap();
    created["metadata"] = json!({
        "name": "younger", "namespace": "fleet", "generation": 1, "creationTimestamp": YOUNGER.created,
    });
    created["spec"]["source"]["path"] = json!("younger");
    let server = world.server.clone();
    *world.tree.on_poll.lock() = Some(Box::new(move || server.put(&YOUNGER.path(), created)));
    let mut deleted = world.server.get(&OLDER.path()).unwrap();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.server.put(&OLDER.path(), deleted);
    world.reconcile_all(&[&OLDER]).await;
    assert!(world.server.get(&OLDER.path()).is_none() && world.moved().is_some());
}

#[tokio::test]
async fn a_directory_moves_between_two_sources_of_one_repository() {
    let world = of_two_sources().await;
    let moved = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moved, namespace: fleet}\n".to_owned();
    world.push("r2", &[("younger/a.yaml", moved), ("younger/b.yaml", map("own-younger"))]);
    world.reconcile_all(&[&OLDER, &YOUNGER]).await;
    assert_eq!(world.moved().unwrap().1, json!(YOUNGER.label()));
    assert_eq!(world.server.deletions(), 0);
}

/// The Sync that has the object is deleted while the conflict with it is found, so no event follows its report.
#[tokio::test]
async fn a_conflict_with_a_sync_that_is_deleted_meanwhile_is_looked_at_again() {
    for is_deleted in [false, true] {
        let world = of_two_sources().await;
        world.push_moved("r2", &[&OLDER, &YOUNGER], &[&OLDER, &YOUNGER]);
        let context = world.context();
        if is_deleted {
            let context = context.clone();
            let delete = move || {
                context.deleted.fetch_add(1, Ordering::AcqRel);
            };
            *world.tree.on_poll.lock() = Some(Box::new(delete));
        }
        let younger: SyncObject = serde_json::from_value(world.server.get(&YOUNGER.path()).unwrap()).unwrap();
        reconciler::reconcile(Arc::new(younger), context.clone()).await.unwrap();
        assert!(world.message_of(&YOUNGER, "Ready").contains("belongs to Sync fleet/older"));
        assert_eq!(context.runs.last(&world.uid_of(&YOUNGER)).is_none(), is_deleted);
    }
}

#[tokio::test]
async fn a_sync_of_a_deleted_namespace_waits_for_no_source() {
    let world = of_two_sources().await;
    *world.tree.polled.lock() = polls().pop().unwrap().1;
    let mut deleted = world.server.get(&OLDER.path()).unwrap();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.server.put(&OLDER.path(), deleted);
    let namespace = json!({"metadata": {"name": "fleet", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    world.server.put("/api/v1/namespaces/fleet", namespace);
    world.reconcile_all(&[&OLDER]).await;
    assert!(world.server.get(&OLDER.path()).is_none() && world.moved().is_some());
}

#[tokio::test]
async fn a_deleted_sync_polls_a_source_that_was_not_read_before() {
    for (what, with, kept) in [("not in the other directory", &OLDER, false), ("moved", &YOUNGER, true)] {
        let world = of_two_sources().await;
        world.push_moved("r2", &[&OLDER, &YOUNGER], &[with]);
        *world.tree.is_unread.lock() = true;
        let mut deleted = world.server.get(&OLDER.path()).unwrap();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        world.server.put(&OLDER.path(), deleted);
        world.reconcile_all(&[&OLDER]).await;
        assert!(world.server.get(&OLDER.path()).is_none(), "{what}");
        assert_eq!(world.moved().is_some(), kept, "{what}");
        assert!(!world.exists(&map_path("own-older")), "{what}");
    }
}

#[tokio::test]
async fn a_namespace_that_may_not_use_the_source_does_not_decide_about_it() {
    let foreign = Named { namespace: FOREIGN, name: "foreign", created: "2025-01-01T00:00:00Z" };
    let world = World::of(&[&OLDER, &foreign]);
    world.set(&OLDER, "deletionPolicy", json!("Prune"));
    world.push_moved("r1", &[&OLDER, &foreign], &[&OLDER]);
    world.reconcile_all(&[&OLDER]).await;
    let mut deleted = world.server.get(&OLDER.path()).unwrap();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.server.put(&OLDER.path(), deleted);
    world.reconcile_all(&[&OLDER]).await;
    assert!(world.server.get(&OLDER.path()).is_none() && world.moved().is_none());
}

#[tokio::test]
async fn nothing_is_deleted_at_a_revision_that_is_not_the_newest() {
    let both = [&OLDER, &YOUNGER];
    let world = World::of(&both);
    world.set(&YOUNGER, "suspend", json!(true));
    world.push_moved("r1", &both, &[&OLDER]);
    world.reconcile_all(&both).await;
    // The object is in no directory at r2, and at r3 in that of the suspended Sync, in the own one, or in none.
    for (what, with, kept) in
        [("moved", vec![&YOUNGER], true), ("back", vec![&OLDER], true), ("gone", vec![], false)]
    {
        let world = World::of(&both);
        world.push_moved("r1", &both, &[&OLDER]);
        world.reconcile_all(&both).await;
        world.set(&YOUNGER, "suspend", json!(true));
        world.push_moved("r3", &both, &with);
        let newest = world.tree.current.lock().clone().unwrap();
        world.push_moved("r2", &both, &[]);
        *world.tree.next.lock() = Some(newest);
        let context = world.context();
        for revision in ["r2", "r3"] {
            let older = serde_json::from_value(world.server.get(&OLDER.path()).unwrap()).unwrap();
            reconciler::reconcile(Arc::new(older), context.clone()).await.unwrap();
            assert_eq!(world.moved().is_some(), kept, "{what}, {revision}");
        }
        assert_eq!(world.held(&OLDER).len(), usize::from(what == "moved"), "{what}");
    }
}

#[tokio::test]
async fn an_unreachable_repository_fails_no_sync_that_was_applied() {
    let world = World::of(&[&OLDER]);
    world.push_moved("r1", &[&OLDER], &[&OLDER]);
    world.reconcile_all(&[&OLDER]).await;
    world.push_moved("r2", &[&OLDER], &[]);
    *world.tree.own_failure.lock() = Some(Failure::new(Category::SourceUnavailable, "git does not answer"));
    world.reconcile_all(&[&OLDER]).await;
    assert!(conditions::is_true(&world.status_of(&OLDER).conditions, "Ready") && world.moved().is_some());
    assert!(world.message_of(&OLDER, "PruneHeld").contains("git does not answer"));
    *world.tree.own_failure.lock() = None;
    world.reconcile_all(&[&OLDER]).await;
    assert!(world.moved().is_none() && world.held(&OLDER).is_empty());
}

/// Without what others want, the guard would hold all deletions, so that nothing seems to need a poll.
#[tokio::test]
async fn what_is_left_to_delete_is_found_at_the_newest_revision() {
    const THIRD: Named<'_> = Named { namespace: "fleet", name: "third", created: "2026-01-04T00:00:00Z" };
    let world = World::of(&[&OLDER, &YOUNGER, &THIRD]);
    world.set(&THIRD, "source", json!({"sourceRef": {"name": "other"}, "path": "third"}));
    world.set(&YOUNGER, "suspend", json!(true));
    let names = |from: usize, to: usize| {
        (from..to).map(|number| map(&format!("m{number}"))).collect::<Vec<_>>().join("---\n")
    };
    let push = |revision, older: String, younger: String| {
        let third = ("third/a.yaml", map("third"));
        world.push(revision, &[("older/a.yaml", older), ("younger/a.yaml", younger), third]);
    };
    push("r1", names(0, 10), map("own"));
    world.reconcile_all(&[&OLDER]).await;
    *world.tree.polled.lock() = Ok(false);
    // One object is in no directory, and may be in that of the other Source.
    push("r2", names(3, 10), names(0, 2));
    world.reconcile_all(&[&OLDER]).await;
    assert!(world.exists(&map_path("m2")) && world.server.deletions() == 0);
    let mut held: Vec<_> = world.held(&OLDER).into_iter().map(|(reason, _)| reason).collect();
    held.sort();
    assert_eq!(held, ["SyncNotRendered", "WantedBySync", "WantedBySync"]);
}

/// A watch may lag behind: the Sync that gets the object is not cached yet.
#[tokio::test]
async fn a_sync_that_is_not_cached_gets_its_objects() {
    let both = [&OLDER, &YOUNGER];
    let mut world = World::of(&both);
    world.set(&YOUNGER, "suspend", json!(true));
    world.push_moved("r1", &both, &[&OLDER]);
    world.reconcile_all(&both).await;
    world.syncs = vec![OLDER.path()];
    world.push_moved("r2", &both, &[&YOUNGER]);
    world.reconcile_all(&[&OLDER]).await;
    assert_eq!(world.held(&OLDER), [("WantedBySync".to_owned(), "fleet/younger".to_owned())]);
    assert!(world.moved().is_some());
}

/// The manager was killed after the older Sync had written the object, and before the younger one was applied again.
#[tokio::test]
async fn a_conflict_is_reported_after_a_restart() {
    let both = [&OLDER, &YOUNGER];
    let world = World::of(&both);
    world.push_moved("r1", &both, &[&YOUNGER]);
    world.reconcile_all(&both).await;
    world.push_moved("r2", &both, &both);
    world.reconcile_all(&[&YOUNGER, &OLDER]).await;
    assert!(conditions::is_true(&world.status_of(&YOUNGER).conditions, "Ready"));
    world.reconcile_all(&[&YOUNGER]).await;
    assert!(world.message_of(&YOUNGER, "Ready").contains("belongs to Sync fleet/older"));
}

/// A tenant commits a Sync of another namespace, which it may or may not create.
#[tokio::test]
async fn a_sync_in_a_foreign_directory_counts_only_if_it_can_be_created() {
    let rows = [
        ("a Source that cannot be read", "other", false, None),
        ("a Source that cannot be read, with permission", "other", true, Some("SyncNotRendered")),
        ("the object", "git", false, None),
        ("the object, with permission", "git", true, Some("WantedBySync")),
    ];
    for (what, source, is_allowed, reason) in rows {
        let both = [&OLDER, &TEAM];
        let world = World::of(&both);
        world.push_moved("r1", &both, &[&OLDER]);
        world.reconcile_all(&both).await;
        let scope = if source == "git" { "Platform" } else { "Namespace" };
        let intruder = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": "intruder", "namespace": "fleet"},
            "spec": {
                "source": {"sourceRef": {"name": source, "scope": scope}, "path": "intruder"},
                "serviceAccountName": "deployer",
            },
        });
        if !is_allowed {
            world.server.deny_access_reviews();
        }
        *world.tree.polled.lock() = Ok(false);
        *world.tree.is_unread.lock() = true;
        let moved = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moved, namespace: fleet}\n".to_owned();
        world.push(
            "r2",
            &[
                ("older/a.yaml", map("own-older")),
                ("team/a.yaml", format!("{intruder}\n")),
                ("intruder/a.yaml", moved),
            ],
        );
        world.reconcile_all(&[&OLDER]).await;
        assert_eq!(world.moved().is_some(), reason.is_some(), "{what}");
        let held = reason.map(|reason| (reason.to_owned(), "fleet/intruder".to_owned()));
        assert_eq!(world.held(&OLDER), held.into_iter().collect::<Vec<_>>(), "{what}");
    }
}

#[tokio::test]
async fn what_is_in_the_directory_again_is_not_held_any_more() {
    let both = [&OLDER, &YOUNGER];
    let world = World::of(&both);
    world.push_moved("r1", &both, &[&OLDER]);
    world.reconcile_all(&both).await;
    world.set(&YOUNGER, "suspend", json!(true));
    world.push_moved("r2", &both, &[&YOUNGER]);
    world.reconcile_all(&both).await;
    assert_eq!(world.held(&OLDER).len(), 1);
    world.push_moved("r3", &both, &both);
    // It is killed after it has recorded what it is about to write.
    world.server.kill_at(2);
    world.reconcile_all(&[&OLDER]).await;
    assert_eq!(world.held(&OLDER), []);
}

#[tokio::test]
async fn a_sync_that_has_written_an_object_applies_the_other_one_that_has_it() {
    let both = [&OLDER, &YOUNGER];
    // The younger one has written last, and both are applied.
    let world = World::of(&both);
    world.push_moved("r1", &both, &[&YOUNGER]);
    world.reconcile_all(&both).await;
    world.push_moved("r2", &both, &both);
    let context = world.context();
    let reconcile = async |sync: &Named<'_>| {
        let object = serde_json::from_value(world.server.get(&sync.path()).unwrap()).unwrap();
        reconciler::reconcile(Arc::new(object), context.clone()).await.unwrap();
    };
    reconcile(&OLDER).await;
    assert_eq!(world.moved().unwrap().1, json!(OLDER.label()));
    assert_eq!(*world.enqueued.lock(), ["younger"]);
    reconcile(&YOUNGER).await;
    assert!(world.message_of(&YOUNGER, "Ready").contains("belongs to Sync fleet/older"));
    assert_eq!(*world.enqueued.lock(), ["younger"], "it has not written what the older one has");
}

#[tokio::test]
async fn other_tenants_cannot_keep_objects() {
    let both = [&OLDER, &TEAM];
    let tenancy = || {
        let mut tenancy = DynamicObject::new("team", &crate::tenancies::resource());
        tenancy.data = json!({"spec": {"namespaces": {"names": ["team"]}}});
        vec![Arc::new(tenancy)]
    };
    // The Sync of the other namespace has the same Source, and an AddonTenancy may not allow the object; it
    // has another Source, and its account may write the object or not, or the deletion is confirmed.
    let rows = [
        ("same source", true),
        ("tenancy", false),
        ("may write", true),
        ("may not write", false),
        ("confirmed", false),
    ];
    for (what, kept) in rows {
        let mut world = World::of(&both);
        if what == "tenancy" {
            world.tenancies = tenancy();
        }
        if !["same source", "tenancy"].contains(&what) {
            world.set(&TEAM, "source", json!({"sourceRef": {"name": "own"}, "path": "team"}));
        }
        world.push_moved("r1", &both, &[&OLDER, &TEAM]);
        world.reconcile_all(&both).await;
        assert_eq!(world.moved().unwrap().1, json!(OLDER.label()), "{what}: it is not stolen");
        world.set(&TEAM, "suspend", json!(true));
        if what == "may not write" {
            world.server.deny_access_reviews();
        }
        if what == "confirmed" {
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "fleet", "name": "moved"});
            let confirm = json!({"revision": "r2", "objects": [object]});
            world.set(&OLDER, "prune", json!({"enabled": true, "confirm": confirm}));
        }
        world.push_moved("r2", &both, &[&TEAM]);
        world.reconcile_all(&[&OLDER]).await;
        assert_eq!(world.moved().is_some(), kept, "{what}");
        let held: Vec<_> = if kept { vec!["team/team".to_owned()] } else { Vec::new() };
        assert_eq!(world.held(&OLDER).into_iter().map(|(_, by)| by).collect::<Vec<_>>(), held, "{what}");
    }
}
