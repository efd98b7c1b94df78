//! Releases that wait for their objects to become ready.

use chandler_api::status::ReleaseStatus;
use chandler_e2e::{
    wait::eventually,
    world::{World, condition},
};
use chandler_sandbox::requests::AuditEntry;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

/// Applies placements whose releases never become ready.
async fn apply_stuck(world: &World, count: usize) {
    for number in 0..count {
        let stuck = json!({"options": {"wait": true, "timeout": "10m"}});
        world.apply_placement(&format!("stuck-{number}"), "stubborn", stuck).await;
    }
}

/// Returns the cluster of each release that waits.
async fn waiting(world: &World) -> Vec<String> {
    let releases = world.releases().list(&ListParams::default()).await.unwrap();
    let waiting = releases.into_iter().filter(|release| release.status.as_ref().is_some_and(is_waiting));
    waiting.filter_map(|release| release.spec.cluster_ref.name).collect()
}

fn is_waiting(status: &ReleaseStatus) -> bool {
    condition(status, "Ready")
        .is_some_and(|ready| ready.message.contains("waiting for ") && ready.message.contains(" to be ready"))
}

#[tokio::test]
async fn releases_that_wait_for_readiness_do_not_block_others() {
    let world = World::new("waiting").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager_with_long_lease();
    // More than the concurrency limit.
    apply_stuck(&world, 20).await;
    for number in 0..20 {
        world.wait_status(&format!("stuck-{number}"), "alpha", "waiting", is_waiting).await;
    }
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
}

#[tokio::test]
async fn operations_wait_on_a_limited_number_of_clusters_and_others_go_on() {
    let world = World::new("waiting-limit").await;
    let _planes = [world.create_cluster("alpha").await, world.create_cluster("bravo").await];
    // One slot, so that no operation begins before the one before it waits.
    let manager = world.start_manager_with(&["--concurrency", "1", "--concurrency-waiting-clusters", "1"]);
    apply_stuck(&world, 2).await;
    eventually("both releases of a cluster wait", || async {
        (waiting(&world).await.len() == 2).then_some(())
    })
    .await;
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("hello", "bravo", 1).await;
    let clusters = waiting(&world).await;
    assert!(clusters.len() == 2 && clusters[0] == clusters[1], "{clusters:?}");

    // When they are removed, those of the other cluster begin.
    let (removed, next) = if clusters[0] == "alpha" { ("alpha", "bravo") } else { ("bravo", "alpha") };
    let deselected = Patch::Merge(json!({"metadata": {"labels": {"fleet": null}}}));
    world.clusters().patch(removed, &PatchParams::default(), &deselected).await.unwrap();
    for number in 0..2 {
        world.wait_status(&format!("stuck-{number}"), next, "waiting", is_waiting).await;
    }
    manager.stop().await;
}

/// A watch of the whole kind would take memory for every object of it.
#[tokio::test]
async fn objects_are_watched_by_name() {
    let world = World::new("waiting-by-name").await;
    let alpha = world.create_cluster("alpha").await;
    let mut audit = alpha.audit_log();
    let manager = world.start_manager();
    apply_stuck(&world, 1).await;
    world.wait_status("stuck-0", "alpha", "waiting", is_waiting).await;
    let mut watches = Vec::new();
    eventually("the Deployment is watched", || {
        let of_driver = |entry: &AuditEntry| entry.verb == "watch" && entry.uri.contains("/namespaces/");
        watches.extend(audit.read().unwrap().into_iter().filter(of_driver).map(|entry| entry.uri));
        std::future::ready((!watches.is_empty()).then_some(()))
    })
    .await;
    assert!(
        watches.iter().all(|uri| uri.contains("/deployments?") && uri.contains("metadata.name")),
        "{watches:#?}"
    );
    manager.stop().await;
}
