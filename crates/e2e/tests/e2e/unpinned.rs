//! Releases without a version follow the newest.

use chandler_e2e::{
    wait::eventually,
    world::{World, hello},
};
use serde_json::json;

#[tokio::test]
async fn a_new_version_is_found_and_rolled_out() {
    let world = World::new("newest").await;
    tokio::join!(world.cluster("alpha"), world.cluster("bravo"));
    let manager = world.manager_with(&["--poll-seconds", "2"]);
    world.place("hello", "hello", json!({"version": ""})).await;
    let status = world.ready("hello", "alpha", 1).await;
    assert_eq!(status.package.unwrap().version, "1.0.0");
    world.ready("hello", "bravo", 1).await;

    // Looking again and again finds nothing new, and does nothing.
    manager.settled().await;
    let calls = |metrics: std::collections::BTreeMap<String, f64>| -> f64 {
        metrics.iter().filter(|(name, _)| name.starts_with("chandler_tool_calls")).map(|(_, n)| n).sum()
    };
    let before = calls(manager.metrics().await);
    assert!(before > 0.0, "the installs called the tool");
    manager.settled().await;
    assert!((calls(manager.metrics().await) - before).abs() < f64::EPSILON, "no tool is called to look");

    world.repository.publish_version(&hello(), "1.1.0").unwrap();
    world.repository.publish_version(&hello(), "2.0.0-rc.1").unwrap();
    let status = world.ready("hello", "alpha", 2).await;
    assert_eq!(status.package.unwrap().version, "1.1.0", "a release candidate is not the newest");
    world.ready("hello", "bravo", 2).await;
}

/// Each release looks at a time of its own; what one of them finds, all that follow the same repository know.
#[tokio::test]
async fn what_one_release_finds_others_need_not_look_for() {
    let world = World::new("found").await;
    tokio::join!(world.cluster("alpha"), world.cluster("bravo"));
    // So rarely that in this test nobody's own time comes.
    let _manager = world.manager_with(&["--poll-seconds", "86400"]);
    world.place("hello", "hello", json!({"version": ""})).await;
    tokio::join!(world.ready("hello", "alpha", 1), world.ready("hello", "bravo", 1));
    world.repository.publish_version(&hello(), "1.1.0").unwrap();

    // A pinned release of the same repository makes the index be read, because it is not in the one that is known.
    world.place("pinned", "hello", json!({"version": "1.1.0", "namespace": "pinned"})).await;
    world.ready("pinned", "alpha", 1).await;
    for cluster in ["alpha", "bravo"] {
        let status = world.ready("hello", cluster, 2).await;
        assert_eq!(status.package.unwrap().version, "1.1.0");
    }
    eventually("the placement is ready everywhere", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        (status.ready_clusters.as_deref() == Some("2/2")).then_some(())
    })
    .await;
}
