//! What happens after the last retry of a failed release: it is rolled back, uninstalled, or kept as it is.

use std::collections::BTreeMap;

use chandler_core::release::OperationKind;
use chandler_e2e::{
    chandler_command::run_ok,
    manager::Manager,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};

/// Values with which the release becomes ready.
fn good(greeting: &str) -> Value {
    let template = format!("greeting: {greeting}\nstuck: false");
    json!({"valuesTemplate": template, "options": {"wait": true, "timeout": "2m"}})
}

/// Values with which the release does not become ready.
fn bad() -> Value {
    // A rollback has as much time: enough to become ready again on a busy machine.
    json!({"valuesTemplate": "greeting: Bad\nstuck: true", "options": {"wait": true, "timeout": "12s"}})
}

fn remediation(retries: u32, on_failure: &str) -> Value {
    json!({"remediation": {"retries": retries, "onFailure": on_failure}})
}

fn revisions(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(revision, status)| (*revision, (*status).to_owned())).collect()
}

/// Returns the labels of the record of a revision.
async fn record_labels(plane: &Plane, release: &str, revision: u32) -> BTreeMap<String, String> {
    let records: Api<Secret> = Api::namespaced(plane.client().await.unwrap(), "default");
    let record = records.get(&format!("sh.helm.release.v1.{release}.v{revision}")).await.unwrap();
    record.metadata.labels.unwrap()
}

/// Returns the number of operations of a release that have started.
fn operations(manager: &Manager, release: &str) -> usize {
    let release = format!("default/{release}");
    manager.operations().iter().filter(|one| one.release == release && one.is_start()).count()
}

/// An upgrade fails twice; the release is rolled back to the revision before it.
async fn roll_back(world: &World, alpha: &Plane) {
    world.apply_policy("rollback", remediation(1, "Rollback")).await;
    world.apply_placement_with_policy("rolled", "stubborn", "rollback", good("Good")).await;
    world.wait_ready("rolled", "alpha", 1).await;
    world.patch_placement("rolled", bad()).await;
    let message = world.wait_reason("rolled", "alpha", "RolledBack").await;
    assert!(message.contains("rolled"), "{message}");
    let expected = revisions(&[(1, "superseded"), (2, "failed"), (3, "failed"), (4, "deployed")]);
    assert_eq!(world.history(alpha, "rolled"), expected);
    assert_eq!(config_value(alpha, "rolled", "greeting").await.as_deref(), Some("Good"));
    let (failed, restored) =
        (record_labels(alpha, "rolled", 3).await, record_labels(alpha, "rolled", 4).await);
    let (inputs, _) = failed["chandler.dev/input"].rsplit_once('.').unwrap();
    assert_eq!(restored["chandler.dev/rolled-back"], format!("{inputs}.4"));
    let (first, _) = record_labels(alpha, "rolled", 1).await["chandler.dev/input"]
        .rsplit_once('.')
        .map(|(digest, revision)| (digest.to_owned(), revision.to_owned()))
        .unwrap();
    assert_eq!(restored["chandler.dev/input"], format!("{first}.4"), "it has the inputs of revision 1");
}

/// An install fails; the release is uninstalled, and its object remains.
async fn uninstall(world: &World, alpha: &Plane) {
    world.apply_policy("uninstall", remediation(0, "Uninstall")).await;
    world.apply_placement_with_policy("gone", "stubborn", "uninstall", bad()).await;
    let message = world.wait_reason("gone", "alpha", "RetriesExhausted").await;
    let failure = world.release("gone", "alpha").await.unwrap().status.unwrap().last_failure.unwrap();
    assert_eq!((&*failure.category, failure.count), ("NotReady", 1));
    assert!(message.contains(&failure.message), "{message}");
    let listed = world.helm(alpha, &["list", "--namespace", "default", "--filter", "^gone$"]);
    assert_eq!(listed, json!([]));
    assert_eq!(config_value(alpha, "gone", "greeting").await, None, "no object is left");
}

/// An install fails twice; the release is kept as it is.
async fn keep(world: &World, alpha: &Plane) {
    world.apply_policy("keep", remediation(1, "Keep")).await;
    world.apply_placement_with_policy("kept", "stubborn", "keep", bad()).await;
    let message = world.wait_reason("kept", "alpha", "RetriesExhausted").await;
    assert!(message.contains("chandler retry"), "{message}");
    assert!(!message.contains("next retry at"), "{message}");
    assert_eq!(world.history(alpha, "kept"), revisions(&[(1, "failed"), (2, "failed")]));
    assert_eq!(config_value(alpha, "kept", "greeting").await.as_deref(), Some("Bad"));
}

/// `atomic` wins over a policy that uninstalls failed releases, and the contradiction is reported.
async fn contradict(world: &World, alpha: &Plane) {
    let atomic = |mut spec: Value| {
        spec["options"]["atomic"] = json!(true);
        spec
    };
    world.apply_policy("contradicts", remediation(0, "Uninstall")).await;
    world.apply_placement_with_policy("atomic", "stubborn", "contradicts", atomic(good("Good"))).await;
    world.wait_ready("atomic", "alpha", 1).await;
    let message =
        world.wait_condition("atomic", "alpha", "PolicyAccepted", ("False", "PolicyConflict")).await;
    assert!(message.contains("atomic") && message.contains("onFailure: Uninstall"), "{message}");
    world.patch_placement("atomic", atomic(bad())).await;
    world.wait_reason("atomic", "alpha", "RetriesExhausted").await;
    // Helm has rolled the upgrade back.
    let expected = revisions(&[(1, "superseded"), (2, "failed"), (3, "deployed")]);
    assert_eq!(world.history(alpha, "atomic"), expected);
    assert_eq!(config_value(alpha, "atomic", "greeting").await.as_deref(), Some("Good"));
}

#[tokio::test]
async fn a_failed_release_is_rolled_back_uninstalled_or_kept_and_not_retried_until_requested() {
    let world = World::new("remediation").await;
    let alpha = world.create_cluster("alpha").await;
    let first = world.start_manager();
    tokio::join!(
        roll_back(&world, &alpha),
        uninstall(&world, &alpha),
        keep(&world, &alpha),
        contradict(&world, &alpha)
    );
    first.wait_idle().await;
    // An install and two upgrades before the rollback; an install before the removal; an install and an upgrade, twice.
    let counts = ["rolled", "gone", "kept", "atomic"].map(|release| operations(&first, release));
    assert_eq!(counts, [4, 2, 2, 2], "nothing more is tried");
    first.stop().await;

    let second = world.start_manager();
    second.wait_idle().await;
    for (name, reason) in
        [("rolled", "RolledBack"), ("gone", "RetriesExhausted"), ("kept", "RetriesExhausted")]
    {
        world.wait_reason(name, "alpha", reason).await;
    }
    assert_eq!(second.operations(), [], "a restart retries nothing");

    // With other policies, a retry is a single attempt. The policies themselves start nothing.
    world.apply_policy("rollback", remediation(0, "Rollback")).await;
    world.apply_policy("keep", remediation(0, "Keep")).await;
    second.wait_idle().await;
    assert_eq!(second.operations(), [], "a changed policy retries nothing");
    for name in ["rolled", "kept"] {
        run_ok(&world, &["retry", &format!("hcp/{name}"), "--cluster", "alpha"]).await;
    }
    world
        .wait_status("rolled", "alpha", "rolled back again", |status| {
            status.revision == Some(6) && condition(status, "Ready").is_some_and(|c| c.reason == "RolledBack")
        })
        .await;
    world
        .wait_status("kept", "alpha", "kept again", |status| {
            let is_exhausted = condition(status, "Ready").is_some_and(|c| c.reason == "RetriesExhausted");
            status.revision == Some(3) && is_exhausted
        })
        .await;
    second.wait_idle().await;
    let counts = ["rolled", "kept", "gone"].map(|release| operations(&second, release));
    assert_eq!(counts, [2, 1, 0], "one attempt each, and a rollback");

    // A changed spec is applied at once.
    for (name, revision) in [("rolled", 7), ("kept", 4), ("gone", 1)] {
        world.patch_placement(name, good("Fixed")).await;
        world.wait_ready(name, "alpha", revision).await;
        assert_eq!(config_value(&alpha, name, "greeting").await.as_deref(), Some("Fixed"));
    }
    assert!(!record_labels(&alpha, "rolled", 7).await.contains_key("chandler.dev/rolled-back"));
    assert_eq!(second.started(OperationKind::REMOVE), 0);
    second.stop().await;
}
