//! One process acts at a time.

use chandler_e2e::{manager::Manager, wait::eventually, world::World};
use serde_json::json;

async fn leads(manager: &Manager) {
    eventually("the manager leads", || async { is_leading(manager).then_some(()) }).await;
}

async fn waits(manager: &Manager) {
    eventually("the manager waits for the Lease", || async {
        manager.logs().contains("\"another process leads; waiting\"").then_some(())
    })
    .await;
}

fn is_leading(manager: &Manager) -> bool {
    manager.logs().contains("\"leading\"")
}

#[tokio::test]
async fn a_successor_takes_over_from_a_killed_and_from_a_stopped_leader() {
    let world = World::new("leader").await;
    let alpha = world.cluster("alpha").await;
    let first = world.manager();
    leads(&first).await;
    let second = world.manager();
    waits(&second).await;
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    assert!(!is_leading(&second), "two processes lead");

    first.kill().await;
    leads(&second).await;
    world.change("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.ready("hello", "alpha", 2).await;

    let third = world.manager();
    waits(&third).await;
    assert!(!is_leading(&third));
    second.stop().await;
    leads(&third).await;
    world.change("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.ready("hello", "alpha", 3).await;
    assert_eq!(world.history(&alpha, "hello").len(), 3, "each change made one revision");
    third.stop().await;
}
