//! Releases made by someone else are taken over as they are, if they are what is wanted.

use chandler_core::release::OperationKind;
use chandler_e2e::{
    wait::eventually,
    world::{World, config_value, hello},
};
use serde_json::json;

#[tokio::test]
async fn a_release_made_by_hand_is_adopted_without_a_revision() {
    let world = World::new("adopt").await;
    let alpha = world.cluster("alpha").await;
    let archive = world.archive(&hello()).to_string_lossy().into_owned();
    let install = ["install", "hello", &archive, "--namespace", "default", "--set", "greeting=Hi"];
    let output = world.helm_command(&alpha, &install).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let _manager = world.manager();
    world.place("hello", "hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);

    let upgrade = ["upgrade", "hello", &archive, "--namespace", "default", "--set", "greeting=Drifted"];
    let output = world.helm_command(&alpha, &upgrade).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.ready("hello", "alpha", 3).await;
    assert_eq!(world.helm(&alpha, &["get", "values", "hello"]), json!({"greeting": "Hi"}));
}

#[tokio::test]
async fn a_release_changed_by_hand_is_noticed_after_a_quiet_restart_too() {
    let world = World::new("changed").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("hello", "hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.ready("hello", "alpha", 1).await;
    manager.settled().await;
    manager.stop().await;
    let manager = world.manager();
    manager.settled().await;
    let archive = world.archive(&hello()).to_string_lossy().into_owned();
    let upgrade = ["upgrade", "hello", &archive, "--namespace", "default", "--set", "greeting=Drifted"];
    let output = world.helm_command(&alpha, &upgrade).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.ready("hello", "alpha", 3).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hi from somewhere"));
    assert_eq!(world.history(&alpha, "hello").len(), 3, "one revision brings it back");
}

#[tokio::test]
async fn a_release_deleted_by_hand_comes_back() {
    let world = World::new("comeback").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    let output =
        world.helm_command(&alpha, &["uninstall", "hello", "--namespace", "default"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the release is installed a second time", || async {
        (manager.succeeded(OperationKind::INSTALL) == 2).then_some(())
    })
    .await;
    world.ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hello from somewhere"));
}
