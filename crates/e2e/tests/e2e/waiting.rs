//! Releases that wait for their objects to become ready.

use std::time::Duration;

use chandler_api::status::ReleaseStatus;
use chandler_e2e::{
    wait::eventually,
    world::{World, condition},
};
use kube::api::ListParams;
use serde_json::json;

/// Applies placements whose releases never become ready.
async fn apply_stuck(world: &World, count: usize) {
    for number in 0..count {
        let stuck = json!({"options": {"wait": true, "timeout": "10m"}});
        world.apply_placement(&format!("stuck-{number}"), "stubborn", stuck).await;
    }
}

/// Returns the number of releases that wait.
async fn waiting(world: &World) -> usize {
    let releases = world.releases().list(&ListParams::default()).await.unwrap();
    releases.iter().filter(|release| release.status.as_ref().is_some_and(is_waiting)).count()
}

fn is_waiting(status: &ReleaseStatus) -> bool {
    condition(status, "Ready")
        .is_some_and(|ready| ready.message.contains("waiting for ") && ready.message.contains(" to be ready"))
}

#[tokio::test]
async fn releases_that_wait_for_readiness_do_not_block_others() {
    let world = World::new("waiting").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager_with_long_lease();
    // More than the concurrency limit.
    apply_stuck(&world, 20).await;
    for number in 0..20 {
        world.wait_status(&format!("stuck-{number}"), "alpha", "waiting", is_waiting).await;
    }
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
}

#[tokio::test]
async fn operations_that_wait_are_limited_and_others_go_on() {
    let world = World::new("waiting-limit").await;
    let alpha = world.create_cluster("alpha").await;
    let mut audit = alpha.audit_log();
    // One slot, so that no operation begins before the one before it waits.
    let manager = world.start_manager_with(&["--concurrency", "1", "--concurrency-waiting", "2"]);
    apply_stuck(&world, 4).await;
    eventually("two releases wait", || async { (waiting(&world).await == 2).then_some(()) }).await;
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(waiting(&world).await, 2, "no further operation begins that would wait");
    let watches = audit.read().unwrap().into_iter().filter(|entry| entry.verb == "watch");
    let whole_kinds: Vec<_> =
        watches.map(|entry| entry.uri).filter(|uri| uri.contains("/namespaces/")).collect();
    assert!(
        !whole_kinds.is_empty() && whole_kinds.iter().all(|uri| uri.contains("metadata.name")),
        "{whole_kinds:#?}"
    );
    manager.stop().await;
}
