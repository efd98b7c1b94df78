//! Tests of charts, which run after each install and upgrade.

use chandler_api::status::{ReleaseStatus, TestState};
use chandler_core::release::OperationKind;
use chandler_e2e::{
    chandler_command::run_ok,
    world::{World, chart, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use serde_json::{Value, json};

fn values(greeting: &str, broken: bool) -> Value {
    json!({"valuesTemplate": format!("greeting: {greeting}\nbroken: {broken}")})
}

fn revisions(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(revision, status)| (*revision, (*status).to_owned())).collect()
}

/// The tests of an upgrade fail: it is rolled back.
async fn strict(world: &World, alpha: &Plane) {
    let policy = json!({"test": {}, "remediation": {"retries": 1, "onFailure": "Rollback"}});
    world.apply_policy("strict", policy).await;
    world.apply_placement_with_policy("strict", "tested", "strict", values("Good", false)).await;
    let status = world.wait_ready("strict", "alpha", 1).await;
    let tested = status.tested.as_ref().unwrap();
    assert_eq!((tested.revision, tested.state), (1, TestState::Succeeded), "it is ready when it was tested");
    world.wait_condition("strict", "alpha", "Tested", ("True", "TestsSucceeded")).await;

    world.patch_placement("strict", values("Bad", true)).await;
    let message = world.wait_reason("strict", "alpha", "RolledBack").await;
    assert!(message.contains("Job default/strict-test"), "{message}");
    let message = world.wait_condition("strict", "alpha", "Tested", ("False", "TestsFailed")).await;
    assert!(message.starts_with("revision 2: Job default/strict-test"), "{message}");
    assert!(!message.contains("log of"), "logs were not requested: {message}");
    let expected = revisions(&[(1, "superseded"), (2, "superseded"), (3, "deployed")]);
    assert_eq!(world.history(alpha, "strict"), expected, "a test that is run again adds no revision");
    assert_eq!(config_value(alpha, "strict", "greeting").await.as_deref(), Some("Good"));
}

/// A failed test is only reported.
async fn lenient(world: &World, alpha: &Plane) {
    world.apply_policy("lenient", json!({"test": {"onFailure": "Ignore"}})).await;
    world.apply_placement_with_policy("lenient", "tested", "lenient", values("Good", true)).await;
    world.wait_condition("lenient", "alpha", "Tested", ("False", "TestsFailed")).await;
    let status = world.wait_ready("lenient", "alpha", 1).await;
    assert_eq!(status.last_failure, None);
    assert_eq!(world.history(alpha, "lenient"), revisions(&[(1, "deployed")]));
}

/// A chart without tests passes them.
async fn untested(world: &World) {
    world.apply_placement_with_policy("untested", "hello", "lenient", json!({})).await;
    let message = world.wait_condition("untested", "alpha", "Tested", ("True", "TestsSucceeded")).await;
    assert_eq!(message, "the package has no tests");
}

#[tokio::test]
async fn a_release_whose_tests_fail_has_failed_unless_the_policy_ignores_it() {
    let world = World::new("helm-tests").await;
    world.repository.publish(&chart("tested")).unwrap();
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    tokio::join!(strict(&world, &alpha), lenient(&world, &alpha));
    untested(&world).await;
    manager.wait_idle().await;
    // Strict: once before and twice after the upgrade.
    assert_eq!(manager.started(OperationKind::Test), 3 + 1 + 1);
    manager.stop().await;

    let second = world.start_manager();
    second.wait_idle().await;
    assert_eq!(second.operations(), [], "a restart tests nothing again");
    // The tests run again if a user asks for it, after the upgrade that was rolled back.
    run_ok(&world, &["retry", "hcp/strict", "--cluster", "alpha"]).await;
    world
        .wait_status("strict", "alpha", "tested and rolled back again", |status: &ReleaseStatus| {
            let is_rolled_back = condition(status, "Ready").is_some_and(|ready| ready.reason == "RolledBack");
            status.revision == Some(5) && is_rolled_back
        })
        .await;
    world.patch_placement("strict", values("Fixed", false)).await;
    world.wait_ready("strict", "alpha", 6).await;
    world.wait_condition("strict", "alpha", "Tested", ("True", "TestsSucceeded")).await;
    second.stop().await;
}
