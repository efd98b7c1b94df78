//! Releases without a version use the newest one.

use chandler_e2e::{
    wait::eventually,
    world::{World, hello},
};
use serde_json::json;

#[tokio::test]
async fn a_new_version_is_found_and_installed() {
    let world = World::new("unpinned").await;
    tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let manager = world.start_manager_with(&["--poll-seconds", "2"]);
    world.apply_placement("hello", "hello", json!({"version": ""})).await;
    let status = world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(status.package.unwrap().version, "1.0.0");
    world.wait_ready("hello", "bravo", 1).await;

    // Polling without a new version causes no work.
    manager.wait_idle().await;
    let calls = |metrics: std::collections::BTreeMap<String, f64>| -> f64 {
        metrics.iter().filter(|(name, _)| name.starts_with("chandler_tool_calls")).map(|(_, n)| n).sum()
    };
    let before = calls(manager.metrics().await);
    assert!(before > 0.0, "the installs called the tool");
    manager.wait_idle().await;
    assert!((calls(manager.metrics().await) - before).abs() < f64::EPSILON, "polling calls no tool");

    world.repository.publish_version(&hello(), "1.1.0").unwrap();
    world.repository.publish_version(&hello(), "2.0.0-rc.1").unwrap();
    let status = world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(status.package.unwrap().version, "1.1.0", "a release candidate is not the newest");
    world.wait_ready("hello", "bravo", 2).await;
}

/// Each release polls at its own time. A new version that one of them finds is used by all releases of the repository.
#[tokio::test]
async fn releases_of_the_same_repository_share_a_newly_found_version() {
    let world = World::new("shared-index").await;
    tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    // So rarely that no release polls during this test.
    let _manager = world.start_manager_with(&["--poll-seconds", "86400"]);
    world.apply_placement("hello", "hello", json!({"version": ""})).await;
    tokio::join!(world.wait_ready("hello", "alpha", 1), world.wait_ready("hello", "bravo", 1));
    world.repository.publish_version(&hello(), "1.1.0").unwrap();

    // A release pinned to a version that is not in the cached index makes the manager read the index again.
    world.apply_placement("pinned", "hello", json!({"version": "1.1.0", "namespace": "pinned"})).await;
    world.wait_ready("pinned", "alpha", 1).await;
    for cluster in ["alpha", "bravo"] {
        let status = world.wait_ready("hello", cluster, 2).await;
        assert_eq!(status.package.unwrap().version, "1.1.0");
    }
    eventually("the placement is ready everywhere", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        (status.ready_clusters.as_deref() == Some("2/2")).then_some(())
    })
    .await;
}
