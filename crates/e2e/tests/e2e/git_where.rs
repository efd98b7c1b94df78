//! `chandler where` and `chandler source`: which commit is where, and what a bad commit looks like.

use chandler_api::extensions::{ExtensionInstance, Source};
use chandler_e2e::{
    chandler_command::{run_err, run_ok},
    extension_world::ExtensionWorld,
    git_repository::{Repository, apply_folder, map, wait_pinned, wait_revision},
    wait::eventually,
    world::{World, config_value},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// Returns cluster and arrival of each place of a commit.
async fn arrivals(world: &World, commit: &str) -> Vec<(String, String)> {
    let report: Value =
        serde_json::from_str(&run_ok(world, &["where", commit, "--output", "json"]).await).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let places = report["places"].as_array().unwrap().iter();
    places.map(|place| (text(&place["cluster"]), text(&place["arrival"]))).collect()
}

async fn wait_arrivals(world: &World, commit: &str, expected: [(&str, &str); 2]) {
    let expected = expected.map(|(cluster, arrival)| (cluster.to_owned(), arrival.to_owned()));
    eventually(&format!("{commit} is at {expected:?}"), || async {
        (arrivals(world, commit).await == expected).then_some(())
    })
    .await;
}

async fn instance(test: &ExtensionWorld) -> ExtensionInstance {
    test.instances().get("maps").await.unwrap()
}

#[tokio::test]
async fn where_shows_how_far_a_commit_has_come() {
    let test = ExtensionWorld::new("git-where").await;
    let world = &test.world;
    let (alpha, bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let _manager = world.start_manager();
    let repository = Repository::new(&test).await;
    let first = repository
        .push(&[("maps/alpha/a.yaml", &map("a", "1")), ("maps/bravo/a.yaml", &map("a", "1"))])
        .await;
    apply_folder(&test, "maps", "maps/{{ .Cluster.metadata.name }}", json!({})).await;
    wait_pinned(&test, "maps", "alpha", &first).await;
    wait_pinned(&test, "maps", "bravo", &first).await;
    wait_arrivals(world, &first[..8], [("alpha", "Current"), ("bravo", "Current")]).await;
    let unknown = run_err(world, &["where", "0123456789abcdef"]).await;
    assert!(unknown.contains("commit 0123456789abcdef is unknown"), "{unknown}");
    assert!(unknown.contains("chandler source reconcile"), "{unknown}");

    // A commit that changes the folder of one cluster has arrived at both.
    let second = repository.push(&[("maps/bravo/a.yaml", &map("a", "2"))]).await;
    wait_pinned(&test, "maps", "bravo", &second).await;
    wait_arrivals(world, &second, [("alpha", "Unchanged"), ("bravo", "Current")]).await;
    wait_arrivals(world, &first, [("alpha", "Current"), ("bravo", "Later")]).await;
    let table = run_ok(world, &["where", &second]).await;
    assert!(table.contains("arrived at 2 of 2 places: 1 current, 1 unchanged"), "{table}");
    eventually("the status counts the revisions", || async {
        let status = instance(&test).await.status?;
        let revisions = status.source_revisions?;
        let counted =
            [&first, &second].iter().all(|commit| revisions.contains(&format!("{}: 1", &commit[..7])));
        let progress = status.sources.first()?;
        (counted && progress.revision.as_ref() == Some(&second) && progress.behind == 0).then_some(())
    })
    .await;
    let history = world.history(&bravo, "maps");
    assert_eq!((history.len(), history[1].1.as_str()), (2, "deployed"));

    // A bad file is reported with its line, the cluster and the commit; the last good commit keeps running.
    let bad = repository.push(&[("maps/bravo/a.yaml", "# no object\n- one\n")]).await;
    wait_revision(&test, &bad).await;
    wait_arrivals(world, &bad, [("alpha", "Unchanged"), ("bravo", "Failed")]).await;
    eventually("an Event names the cluster, the commit, the file and the line", || async {
        let events = test.warning_events().await;
        let mut notes = events.into_iter().filter_map(|event| event.note);
        notes.find(|note| {
            ["cluster bravo", bad.as_str(), "a.yaml, line 2"].iter().all(|part| note.contains(part))
        })
    })
    .await;
    assert_eq!(config_value(&bravo, "a", "value").await.as_deref(), Some("2"));
    repository.tree.git(&["rm", "-r", "--quiet", "maps/alpha"]).await.unwrap();
    let missing = repository.push(&[]).await;
    wait_revision(&test, &missing).await;
    wait_arrivals(world, &missing, [("alpha", "Failed"), ("bravo", "Failed")]).await;
    let status = instance(&test).await.status.unwrap();
    assert_eq!(status.sources[0].behind_clusters, ["alpha"]);
    eventually("an Event names the cluster, the commit and the folder", || async {
        let events = test.warning_events().await;
        let mut notes = events.into_iter().filter_map(|event| event.note);
        notes.find(|note| ["alpha:", missing.as_str(), "maps/alpha"].iter().all(|part| note.contains(part)))
    })
    .await;
    assert_eq!(config_value(&alpha, "a", "value").await.as_deref(), Some("1"));

    // Going back in Git is enough.
    repository.tree.git(&["reset", "--quiet", "--hard", &second]).await.unwrap();
    repository.tree.push().await.unwrap();
    wait_pinned(&test, "maps", "bravo", &second).await;
    wait_arrivals(world, &second, [("alpha", "Unchanged"), ("bravo", "Current")]).await;
}

#[tokio::test]
async fn sources_are_shown_polled_suspended_and_pinned() {
    let test = ExtensionWorld::new("git-source-commands").await;
    let world = &test.world;
    let _manager = world.start_manager();
    let repository = Repository::new(&test).await;
    let first = repository.push(&[("a.yaml", &map("a", "1"))]).await;
    wait_revision(&test, &first).await;
    // From now on, only requests and changes of the spec poll the repository.
    let sources: Api<Source> = Api::namespaced(world.client.clone(), &world.namespace);
    let slow = Patch::Merge(json!({"spec": {"interval": "24h"}}));
    sources.patch("apps", &PatchParams::default(), &slow).await.unwrap();
    run_ok(world, &["source", "reconcile", "apps"]).await;

    let second = repository.push(&[("a.yaml", &map("a", "2"))]).await;
    let polled = run_ok(world, &["source", "reconcile", "apps"]).await;
    assert!(polled.contains(&format!("is at {second} by Anna <anna@example.com>: change")), "{polled}");
    let listed: Value =
        serde_json::from_str(&run_ok(world, &["source", "get", "--output", "json"]).await).unwrap();
    assert_eq!((&listed[0]["revision"], &listed[0]["ref"]), (&json!(second), &json!("default branch")));
    let described = run_ok(world, &["source", "describe", "apps"]).await;
    for expected in [&*first, &*second, "Ready", "No ExtensionInstance and no Sync uses it"] {
        assert!(described.contains(expected), "{described}");
    }

    run_ok(world, &["source", "suspend", "apps"]).await;
    let refused = run_err(world, &["source", "reconcile", "apps"]).await;
    assert!(refused.contains("chandler source resume apps"), "{refused}");
    let third = repository.push(&[("a.yaml", &map("a", "3"))]).await;
    run_ok(world, &["source", "resume", "apps"]).await;
    wait_revision(&test, &third).await;

    let pinned = run_ok(world, &["source", "pin", "apps", &first[..8]]).await;
    assert!(pinned.contains(&format!("is pinned to {first}")), "{pinned}");
    wait_revision(&test, &first).await;
    let table = run_ok(world, &["source", "get"]).await;
    assert!(table.contains(&format!("{} (pinned)", &first[..7])), "{table}");
    let unpinned = run_ok(world, &["source", "unpin", "apps"]).await;
    assert!(unpinned.contains("follows default branch again"), "{unpinned}");
    wait_revision(&test, &third).await;

    let branch = Patch::Merge(json!({"spec": {"git": {"ref": {"branch": "missing"}}}}));
    sources.patch("apps", &PatchParams::default(), &branch).await.unwrap();
    let failed = run_err(world, &["source", "reconcile", "apps"]).await;
    assert!(failed.contains("has no branch missing"), "{failed}");
    let absent = run_err(world, &["source", "describe", "absent"]).await;
    assert!(absent.contains("there is no Source absent"), "{absent}");
}
