//! Two placements with the same release.

use std::{sync::Arc, time::Duration};

use chandler_core::release::OperationKind;
use chandler_e2e::{
    manager::Manager,
    wait::eventually,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use serde_json::json;

/// Creates two placements with the same release, one after the other.
async fn colliding_placements(name: &str) -> (World, Arc<Plane>, Manager) {
    let world = World::new(name).await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world
        .apply_placement(
            "first-placement",
            "hello",
            json!({"releaseName": "shared", "valuesTemplate": "greeting: First"}),
        )
        .await;
    world.wait_ready("first-placement", "alpha", 1).await;
    // Creation times have a resolution of one second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world
        .apply_placement(
            "second-placement",
            "hello",
            json!({"releaseName": "shared", "valuesTemplate": "greeting: Second"}),
        )
        .await;
    let status = world
        .wait_status("second-placement", "alpha", "colliding", |status| {
            condition(status, "Ready").is_some_and(|c| c.reason == "ReleaseCollision")
        })
        .await;
    assert!(condition(&status, "Ready").unwrap().message.contains("first-placement"), "{status:?}");
    (world, alpha, manager)
}

#[tokio::test]
async fn the_older_placement_keeps_the_release_and_both_report_the_collision() {
    let (world, alpha, _manager) = colliding_placements("collision").await;
    world
        .wait_status(
            "first-placement",
            "alpha",
            "Ready, with a message about the other placement",
            |status| {
                condition(status, "Ready")
                    .is_some_and(|c| c.status == "True" && c.message.contains("second-placement"))
            },
        )
        .await;

    world.delete_placement("second-placement").await;
    world.wait_deleted("second-placement").await;
    assert_eq!(config_value(&alpha, "shared", "greeting").await.as_deref(), Some("First from somewhere"));
    assert_eq!(
        world.history(&alpha, "shared"),
        [(1, "deployed".to_owned())],
        "the newer placement changed nothing"
    );
    world
        .wait_status("first-placement", "alpha", "Ready without a message", |status| {
            condition(status, "Ready").is_some_and(|c| c.status == "True" && c.message.is_empty())
        })
        .await;
}

#[tokio::test]
async fn the_newer_placement_adopts_the_release_when_the_older_one_is_deleted() {
    let (world, alpha, manager) = colliding_placements("handover").await;
    world.delete_placement("first-placement").await;
    world.wait_deleted("first-placement").await;
    eventually("the values of the newer placement are applied", || async {
        (config_value(&alpha, "shared", "greeting").await.as_deref() == Some("Second from somewhere"))
            .then_some(())
    })
    .await;
    world.wait_ready("second-placement", "alpha", 2).await;
    assert_eq!(
        manager.started(OperationKind::REMOVE),
        0,
        "the release is adopted, not uninstalled and reinstalled"
    );
}
