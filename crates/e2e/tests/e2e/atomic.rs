//! `atomic`: an operation that does not become ready is rolled back, reported, and retried with backoff.

use std::time::Duration;

use chandler_api::status::ReleaseStatus;
use chandler_core::release::OperationKind;
use chandler_e2e::{
    manager::Manager,
    wait::eventually,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

/// The shortest backoff after a first failure: 5 s minus 20 % jitter.
const FIRST_BACKOFF: Duration = Duration::from_secs(4);
/// The time of a failure is stored without fractions of a second, so a retry may start up to a second earlier.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_secs(3);

fn values(greeting: &str, stuck: bool) -> Value {
    let template = format!("greeting: {greeting}\nstuck: {stuck}");
    // A rollback has as much time as its upgrade: enough to become ready on a busy machine.
    let timeout = if stuck { "10s" } else { "1m" };
    json!({"valuesTemplate": template, "options": {"atomic": true, "timeout": timeout}})
}

/// Returns the pauses between the end of an operation of this kind and the start of the next one, by the manager's log.
fn pauses(manager: &Manager, kind: OperationKind) -> Vec<SignedDuration> {
    let logs = manager.logs();
    let lines = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let changes: Vec<(bool, Timestamp)> = lines
        .filter(|line| line["kind"] == kind.as_str())
        .filter_map(|line| {
            let has_ended = match line["message"].as_str()? {
                "operation starts" => false,
                "operation ended" => true,
                _ => return None,
            };
            Some((has_ended, line["timestamp"].as_str()?.parse().ok()?))
        })
        .collect();
    let pauses = changes.windows(2).filter(|pair| pair[0].0 && !pair[1].0);
    pauses.map(|pair| pair[1].1.duration_since(pair[0].1)).collect()
}

fn assert_backoff(manager: &Manager, kind: OperationKind) {
    let pauses = pauses(manager, kind);
    assert!(pauses[0] >= SHORTEST_PAUSE, "nothing is retried before the backoff is over: {pauses:?}");
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

/// Returns the newest revision of the release on the cluster, or 0 if there is none.
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
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await.as_deref(), Some("Good"));
    tokio::time::sleep(FIRST_BACKOFF / 4).await;
    let (_, count) = wait_failure(&world).await;
    assert_eq!(count, 1, "the failure is reported until the next attempt");

    let again = world
        .wait_status("stubborn", "alpha", "reported as failed twice", |status| {
            failed(status) && status.last_failure.as_ref().is_some_and(|failure| failure.count == 2)
        })
        .await;
    assert_eq!(again.revision, Some(5), "an attempt adds two revisions: the upgrade and the rollback");
    assert_backoff(&manager, OperationKind::UPGRADE);
    tokio::time::sleep(FIRST_BACKOFF).await;
    assert_eq!(newest_revision(&alpha).await, 5, "the second backoff is longer than the first");
    assert_eq!(manager.ended(OperationKind::UPGRADE), 2);

    world.patch_placement("stubborn", values("Fixed", false)).await;
    world.wait_ready("stubborn", "alpha", 6).await;
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await.as_deref(), Some("Fixed"));
    // Read here, because the helm CLI may take longer than a backoff.
    let statuses = ["superseded", "failed", "superseded", "failed", "superseded", "deployed"];
    let expected: Vec<_> = (1..).zip(statuses.map(str::to_owned)).collect();
    assert_eq!(world.history(&alpha, "stubborn"), expected);
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
    assert_eq!(newest_revision(&alpha).await, 0, "no record is left");
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await, None, "no object is left");
    eventually("the install is retried", || async {
        let (_, count) = wait_failure(&world).await;
        (count == 2).then_some(())
    })
    .await;
    assert_backoff(&manager, OperationKind::INSTALL);
    tokio::time::sleep(FIRST_BACKOFF).await;
    assert_eq!(manager.started(OperationKind::INSTALL), 2, "the second backoff is longer than the first");

    world.patch_placement("stubborn", values("Fixed", false)).await;
    world.wait_ready("stubborn", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "stubborn"), [(1, "deployed".to_owned())]);
}
