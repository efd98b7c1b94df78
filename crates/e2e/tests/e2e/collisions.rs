//! Two placements that want one release.

use std::{sync::Arc, time::Duration};

use chandler_core::release::OperationKind;
use chandler_e2e::{
    manager::Manager,
    wait::eventually,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use serde_json::json;

/// Two placements, one after the other, that want the same release.
async fn rivals(name: &str) -> (World, Arc<Plane>, Manager) {
    let world = World::new(name).await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world
        .place("elder", "hello", json!({"releaseName": "shared", "valuesTemplate": "greeting: Elder"}))
        .await;
    world.ready("elder", "alpha", 1).await;
    // Creation times have a resolution of one second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world
        .place("younger", "hello", json!({"releaseName": "shared", "valuesTemplate": "greeting: Younger"}))
        .await;
    let told = world
        .status("younger", "alpha", "told that the release is taken", |status| {
            condition(status, "Ready").is_some_and(|c| c.reason == "ReleaseCollision")
        })
        .await;
    assert!(condition(&told, "Ready").unwrap().message.contains("elder"), "{told:?}");
    (world, alpha, manager)
}

#[tokio::test]
async fn the_elder_keeps_its_release_and_both_say_so() {
    let (world, alpha, _manager) = rivals("collision").await;
    world
        .status("elder", "alpha", "told who else wants it", |status| {
            condition(status, "Ready").is_some_and(|c| c.status == "True" && c.message.contains("younger"))
        })
        .await;

    world.delete("younger").await;
    world.gone("younger").await;
    assert_eq!(config_value(&alpha, "shared", "greeting").await.as_deref(), Some("Elder from somewhere"));
    assert_eq!(world.history(&alpha, "shared"), [(1, "deployed".to_owned())], "the younger touched nothing");
    world
        .status("elder", "alpha", "content again", |status| {
            condition(status, "Ready").is_some_and(|c| c.status == "True" && c.message.is_empty())
        })
        .await;
}

#[tokio::test]
async fn the_younger_takes_over_when_the_elder_goes() {
    let (world, alpha, manager) = rivals("heir").await;
    world.delete("elder").await;
    world.gone("elder").await;
    eventually("the younger's release is there", || async {
        (config_value(&alpha, "shared", "greeting").await.as_deref() == Some("Younger from somewhere"))
            .then_some(())
    })
    .await;
    world.ready("younger", "alpha", 2).await;
    assert_eq!(
        manager.started(OperationKind::REMOVE),
        0,
        "what runs is handed over, not taken away and put back"
    );
}
