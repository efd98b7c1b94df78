//! Leader election: only one manager is active at a time.

use chandler_e2e::{manager::Manager, wait::eventually, world::World};
use serde_json::json;

async fn wait_leading(manager: &Manager) {
    eventually("the manager leads", || async { is_leading(manager).then_some(()) }).await;
}

async fn wait_standby(manager: &Manager) {
    eventually("the manager waits for the Lease", || async {
        manager.logs().contains("\"another process leads; waiting\"").then_some(())
    })
    .await;
}

fn is_leading(manager: &Manager) -> bool {
    manager.logs().contains("\"leading\"")
}

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_or_stopped_leader() {
    let world = World::new("leader").await;
    let alpha = world.create_cluster("alpha").await;
    let first = world.start_manager();
    wait_leading(&first).await;
    let second = world.start_manager();
    wait_standby(&second).await;
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert!(!is_leading(&second), "two managers lead");

    first.kill().await;
    wait_leading(&second).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 2).await;

    let third = world.start_manager();
    wait_standby(&third).await;
    assert!(!is_leading(&third));
    second.stop().await;
    wait_leading(&third).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.wait_ready("hello", "alpha", 3).await;
    assert_eq!(world.history(&alpha, "hello").len(), 3, "each change adds one revision");
    third.stop().await;
}
