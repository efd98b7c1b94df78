//! `atomic`: what cannot become ready is taken back, told, and not tried again at every turn.

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

/// The next try is at least this far off when a failure has been told: 5 s less a fifth.
const FIRST_BACKOFF: Duration = Duration::from_secs(4);

fn values(greeting: &str, stuck: bool) -> Value {
    let template = format!("greeting: {greeting}\nstuck: {stuck}");
    json!({"valuesTemplate": template, "options": {"atomic": true, "timeout": "4s"}})
}

fn failed(status: &ReleaseStatus) -> bool {
    condition(status, "Ready").is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed")
}

/// What was told of a failure.
async fn failure(world: &World) -> (String, u32) {
    let told = world.status("stubborn", "alpha", "told to have failed", failed).await;
    let record = told.last_failure.clone().unwrap();
    let ready = condition(&told, "Ready").unwrap();
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
async fn an_upgrade_that_cannot_become_ready_rolls_back_and_is_not_repeated_at_once() {
    let world = World::new("atomicup").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("stubborn", "stubborn", values("Good", false)).await;
    world.ready("stubborn", "alpha", 1).await;
    world.change("stubborn", values("Bad", true)).await;

    assert_eq!(failure(&world).await, ("NotReady".to_owned(), 1));
    let expected = [(1, "superseded"), (2, "failed"), (3, "deployed")].map(|(n, s)| (n, s.to_owned()));
    assert_eq!(world.history(&alpha, "stubborn"), expected);
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await.as_deref(), Some("Good"));
    tokio::time::sleep(FIRST_BACKOFF / 2).await;
    assert_eq!(newest_revision(&alpha).await, 3, "nothing is tried before its time");
    let (_, count) = failure(&world).await;
    assert_eq!(count, 1, "the failure stands until the next try");

    let again = world
        .status("stubborn", "alpha", "told to have failed twice", |status| {
            failed(status) && status.last_failure.as_ref().is_some_and(|failure| failure.count == 2)
        })
        .await;
    assert_eq!(again.revision, Some(5), "a try is two revisions: the upgrade, and the way back");
    tokio::time::sleep(FIRST_BACKOFF).await;
    assert_eq!(newest_revision(&alpha).await, 5, "the second wait is longer than the first");
    assert_eq!(manager.ended(OperationKind::UPGRADE), 2);

    world.change("stubborn", values("Mended", false)).await;
    world.ready("stubborn", "alpha", 6).await;
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await.as_deref(), Some("Mended"));
    assert_eq!(world.history(&alpha, "stubborn").last().unwrap().1, "deployed");
}

#[tokio::test]
async fn going_back_to_the_values_that_were_rolled_back_to_adds_no_revision() {
    let world = World::new("atomicback").await;
    let alpha = world.cluster("alpha").await;
    let _manager = world.manager();
    world.place("stubborn", "stubborn", values("Good", false)).await;
    world.ready("stubborn", "alpha", 1).await;
    world.change("stubborn", values("Bad", true)).await;
    failure(&world).await;
    world.change("stubborn", values("Good", false)).await;
    world.ready("stubborn", "alpha", 3).await;
    assert_eq!(world.history(&alpha, "stubborn").len(), 3, "what is there is what is wanted");
}

#[tokio::test]
async fn an_install_that_cannot_become_ready_is_uninstalled_and_not_repeated_at_once() {
    let world = World::new("atomicin").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("stubborn", "stubborn", values("Bad", true)).await;
    assert_eq!(failure(&world).await, ("NotReady".to_owned(), 1));
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    assert_eq!(config_value(&alpha, "stubborn", "greeting").await, None, "nothing is left of it");
    tokio::time::sleep(FIRST_BACKOFF / 2).await;
    assert_eq!(manager.ended(OperationKind::INSTALL), 1);
    eventually("it is tried again in time", || async {
        let (_, count) = failure(&world).await;
        (count == 2).then_some(())
    })
    .await;
    tokio::time::sleep(FIRST_BACKOFF).await;
    assert_eq!(manager.ended(OperationKind::INSTALL), 2, "the second wait is longer than the first");

    world.change("stubborn", values("Mended", false)).await;
    world.ready("stubborn", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "stubborn"), [(1, "deployed".to_owned())]);
}
