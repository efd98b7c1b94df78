//! Conditions, their reasons, and the revision history in the status of objects.

use std::sync::{Arc, Mutex};

use chandler_e2e::{
    wait::eventually,
    world::{World, condition},
};
use futures::TryStreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

#[tokio::test]
async fn the_status_lists_the_last_revisions() {
    let world = World::new("history").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    for revision in 2..=6 {
        world
            .patch_placement("hello", json!({"valuesTemplate": format!("greeting: Hello {revision}")}))
            .await;
        world.wait_ready("hello", "alpha", revision).await;
    }
    let history = eventually("the status lists the last five revisions", || async {
        let history = world.release("hello", "alpha").await?.status?.history;
        let history: Vec<_> = history.into_iter().map(|r| (r.revision, r.status, r.version)).collect();
        (history.len() == 5 && history[0].0 == 6).then_some(history)
    })
    .await;
    let version = || Some("1.0.0".to_owned());
    let expected: Vec<_> = std::iter::once((6, "deployed".to_owned(), version()))
        .chain((2..=5).rev().map(|revision| (revision, "superseded".to_owned(), version())))
        .collect();
    assert_eq!(history, expected);
    assert_eq!(world.history(&alpha, "hello").len(), 6);
}

#[tokio::test]
async fn a_missing_secret_is_reported_with_the_reasons_of_caaph() {
    let world = World::new("secrets").await;
    world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    let rows = [
        ("ca", json!({"tlsConfig": {"caSecret": {"name": "nowhere"}}}), "GetCACertificateFailed"),
        ("login", json!({"credentials": {"secret": {"name": "nowhere"}, "key": ""}}), "GetCredentialsFailed"),
    ];
    for (name, change, reason) in rows {
        world.apply_placement(name, "hello", change).await;
        let status = world
            .wait_status(name, "alpha", reason, |status| {
                condition(status, "ClusterAvailable").is_some_and(|c| c.reason == reason)
            })
            .await;
        let ready = condition(&status, "Ready").unwrap();
        assert_eq!((&*ready.status, &*ready.reason), ("False", reason));
        assert!(ready.message.contains("nowhere does not exist"), "{}", ready.message);
    }
}

#[tokio::test]
async fn a_secret_of_another_namespace_needs_a_reference_grant() {
    let world = World::new("granted").await;
    world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    let shared = world.sandbox.namespace("granting").await.unwrap();
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "authority", "namespace": shared},
            "stringData": {"ca.crt": world.repository.ca_pem()},
        }))
        .await;
    world
        .apply_placement(
            "hello",
            "hello",
            json!({"tlsConfig": {"caSecret": {"name": "authority", "namespace": shared}}}),
        )
        .await;
    let refused = world
        .wait_status("hello", "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|c| c.reason == "GetCACertificateFailed")
        })
        .await;
    let message = &condition(&refused, "Ready").unwrap().message;
    assert!(message.contains(&format!("create a ReferenceGrant in namespace {shared}")), "{message}");

    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ReferenceGrant",
            "metadata": {"name": "authority", "namespace": shared},
            "spec": {
                "from": [{
                    "group": "addons.cluster.x-k8s.io", "kind": "HelmChartProxy", "namespace": world.namespace,
                }],
                "to": [{"kind": "Secret", "name": "authority"}],
            },
        }))
        .await;
    world.wait_ready("hello", "alpha", 1).await;
}

/// Records the reasons of `HelmReleaseProxySpecsUpToDate` of all placements from now on, without repetitions.
fn record_reasons(world: &World) -> Arc<Mutex<Vec<String>>> {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let (placements, seen) = (world.placements(), reasons.clone());
    tokio::spawn(async move {
        let changes = watcher(placements, watcher::Config::default()).applied_objects();
        let record = changes.try_for_each(|placement| {
            let all = placement.status.into_iter().flat_map(|status| status.conditions);
            let mut specs = all.filter(|condition| condition.type_ == "HelmReleaseProxySpecsUpToDate");
            let mut seen: std::sync::MutexGuard<'_, Vec<String>> = seen.lock().unwrap();
            seen.extend(specs.next().map(|condition| condition.reason));
            seen.dedup();
            futures::future::ready(Ok(()))
        });
        record.await.unwrap();
    });
    reasons
}

#[tokio::test]
async fn a_placement_reports_whether_it_updates_or_reinstalls() {
    const UPDATING: &str = "HelmReleaseProxySpecsUpdating";
    const REINSTALLING: &str = "HelmReleaseProxyReinstalling";
    const DONE: &str = "UpToDate";
    let world = World::new("spec-reasons").await;
    let alpha = world.create_cluster("alpha").await;
    let reasons = record_reasons(&world);
    let wait_reasons = |expected: &'static [&'static str]| {
        let reasons = reasons.clone();
        eventually("the placement reports the expected reasons", move || {
            let seen = reasons.lock().unwrap().clone();
            assert!(expected.iter().zip(&seen).all(|(expected, seen)| expected == seen), "{seen:?}");
            async move { (seen == expected).then_some(()) }
        })
    };
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"releaseName": "given"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    wait_reasons(&[UPDATING, DONE]).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    wait_reasons(&[UPDATING, DONE, UPDATING, DONE]).await;
    let before = world.release("hello", "alpha").await.unwrap();

    // The change is made while no manager runs. Another name means another release.
    manager.stop().await;
    world.patch_placement("hello", json!({"releaseName": ""})).await;
    let _manager = world.start_manager();
    eventually("the release object is replaced", || async {
        let release = world.release("hello", "alpha").await?;
        (release.metadata.uid != before.metadata.uid).then_some(())
    })
    .await;
    let status = world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(status.status, "deployed");
    let after = world.release("hello", "alpha").await.unwrap();
    assert!(after.spec.release_name.starts_with("hello-"), "{}", after.spec.release_name);
    let names: Vec<_> = world
        .helm(&alpha, &["list", "--all-namespaces"])
        .as_array()
        .unwrap()
        .iter()
        .map(|release| release["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, [after.spec.release_name], "the release with the old name is removed");
    wait_reasons(&[UPDATING, DONE, UPDATING, DONE, REINSTALLING, DONE]).await;
}
