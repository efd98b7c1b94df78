//! Releases that were installed or changed with the helm CLI.

use chandler_core::release::OperationKind;
use chandler_e2e::{
    wait::eventually,
    world::{World, config_value, hello},
};
use serde_json::json;

#[tokio::test]
async fn a_release_installed_with_the_helm_cli_is_adopted_without_a_new_revision() {
    let world = World::new("adopt").await;
    let alpha = world.create_cluster("alpha").await;
    let archive = world.archive(&hello()).to_string_lossy().into_owned();
    let install = ["install", "hello", &archive, "--namespace", "default", "--set", "greeting=Hi"];
    let output = world.helm_command(&alpha, &install).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);

    let upgrade = ["upgrade", "hello", &archive, "--namespace", "default", "--set", "greeting=Drifted"];
    let output = world.helm_command(&alpha, &upgrade).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.wait_ready("hello", "alpha", 3).await;
    assert_eq!(world.helm(&alpha, &["get", "values", "hello"]), json!({"greeting": "Hi"}));
}

#[tokio::test]
async fn a_release_upgraded_with_the_helm_cli_is_reverted_even_after_a_manager_restart() {
    let world = World::new("changed").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    manager.wait_idle().await;
    manager.stop().await;
    let manager = world.start_manager();
    manager.wait_idle().await;
    let archive = world.archive(&hello()).to_string_lossy().into_owned();
    let upgrade = ["upgrade", "hello", &archive, "--namespace", "default", "--set", "greeting=Drifted"];
    let output = world.helm_command(&alpha, &upgrade).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.wait_ready("hello", "alpha", 3).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hi from somewhere"));
    assert_eq!(world.history(&alpha, "hello").len(), 3, "one revision reverts it");
}

#[tokio::test]
async fn a_release_uninstalled_with_the_helm_cli_is_reinstalled() {
    let world = World::new("reinstall").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let output =
        world.helm_command(&alpha, &["uninstall", "hello", "--namespace", "default"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the release is installed a second time", || async {
        (manager.succeeded(OperationKind::INSTALL) == 2).then_some(())
    })
    .await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hello from somewhere"));
}
