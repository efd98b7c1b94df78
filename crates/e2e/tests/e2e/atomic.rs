//! `atomic`: an operation that does not become ready is rolled back, reported, and retried with backoff.

use std::time::Duration;

use chandler_api::status::ReleaseStatus;
use chandler_core::release::OperationKind;
use chandler_e2e::{
    wait::eventually,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

/// The shortest backoff after a first failure: 5 s minus 20 % jitter.
const FIRST_BACKOFF: Duration = Duration::from_secs(4);

fn values(greeting: &str, stuck: bool) -> Value {
    let template = format!("greeting: {greeting}\nstuck: {stuck}");
    json!({"valuesTemplate": template, "options": {"atomic": true, "timeout": "4s"}})
}

fn failed(status: &ReleaseStatus) -> bool {
    condition(status, "Ready").is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed")
}

/// Waits until a failure is reported. Returns its category and count.
async fn wait_failure(world: &World) -> (String, u32) {
    let status = world.wait_status("stubborn", "alpha", "reported as failed", failed).await;
    let record = status.last_failure.clone().unwrap();
    let ready = condition(&status, "Ready").unwrap();
    assert!(ready.message.contains(&record.message) && ready.message.contains("next retry at"), "{ready:?}");
    (record.category, record.count)
}

async fn newest_revision(plane: &Plane) -> u32 {
    let records: Api<Secret> = Api::namespaced(plane.client().await.unwrap(), "default");
    let all = records.list(&ListParams::default().labels("owner=helm,name=stubborn")).await.unwrap();
    let revisions = all.into_iter().map(|record| record.metadata.labels.unwrap()["version"].parse().unwrap());
    revisions.max().unwrap_or_default()
}

#[tokio::test]
async fn an_upgrade_that_does_not_become_ready_is_rolled_back_and_retried_with_backoff() {
    let world = World::new("atomicup").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("stubborn", "stubborn", values("Good", false)).await;
    world.wait_ready("stubborn", "alpha", 1).await;
    world.patch_placement("stubborn", values("Bad", true)).await;

    assert_eq!(wait_failure(&world).await, ("NotReady".to_owned(), 1));
    let expected = [(1, "superseded"), (2, "failed"), (3, "deployed")].map(|(n, s)| (n, s.to_owned()));
    assert_eq!(world.history(&alpha, "stubborn"), expected);
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await.as_deref(), Some("Good"));
    tokio::time::sleep(FIRST_BACKOFF / 2).await;
    assert_eq!(newest_revision(&alpha).await, 3, "nothing is retried before the backoff is over");
    let (_, count) = wait_failure(&world).await;
    assert_eq!(count, 1, "the failure is reported until the next attempt");

    let again = world
        .wait_status("stubborn", "alpha", "reported as failed twice", |status| {
            failed(status) && status.last_failure.as_ref().is_some_and(|failure| failure.count == 2)
        })
        .await;
    assert_eq!(again.revision, Some(5), "an attempt adds two revisions: the upgrade and the rollback");
    tokio::time::sleep(FIRST_BACKOFF).await;
    assert_eq!(newest_revision(&alpha).await, 5, "the second backoff is longer than the first");
    assert_eq!(manager.ended(OperationKind::UPGRADE), 2);

    world.patch_placement("stubborn", values("Fixed", false)).await;
    world.wait_ready("stubborn", "alpha", 6).await;
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await.as_deref(), Some("Fixed"));
    assert_eq!(world.history(&alpha, "stubborn").last().unwrap().1, "deployed");
}

#[tokio::test]
async fn reverting_to_the_rolled_back_values_adds_no_revision() {
    let world = World::new("atomicback").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    world.apply_placement("stubborn", "stubborn", values("Good", false)).await;
    world.wait_ready("stubborn", "alpha", 1).await;
    world.patch_placement("stubborn", values("Bad", true)).await;
    wait_failure(&world).await;
    world.patch_placement("stubborn", values("Good", false)).await;
    world.wait_ready("stubborn", "alpha", 3).await;
    assert_eq!(world.history(&alpha, "stubborn").len(), 3, "the rolled-back release is already up to date");
}

#[tokio::test]
async fn an_install_that_does_not_become_ready_is_uninstalled_and_retried_with_backoff() {
    let world = World::new("atomicin").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("stubborn", "stubborn", values("Bad", true)).await;
    assert_eq!(wait_failure(&world).await, ("NotReady".to_owned(), 1));
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await, None, "no object is left");
    tokio::time::sleep(FIRST_BACKOFF / 2).await;
    assert_eq!(manager.ended(OperationKind::INSTALL), 1);
    eventually("the install is retried", || async {
        let (_, count) = wait_failure(&world).await;
        (count == 2).then_some(())
    })
    .await;
    tokio::time::sleep(FIRST_BACKOFF).await;
    assert_eq!(manager.ended(OperationKind::INSTALL), 2, "the second backoff is longer than the first");

    world.patch_placement("stubborn", values("Fixed", false)).await;
    world.wait_ready("stubborn", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "stubborn"), [(1, "deployed".to_owned())]);
}
