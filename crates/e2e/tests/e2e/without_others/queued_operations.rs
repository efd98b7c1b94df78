//! Operations of many releases that wait for a slot can be withdrawn, and survive the end of the manager.

use std::{sync::Arc, time::Duration};

use chandler_core::release::OperationKind;
use chandler_e2e::{
    manager::Manager,
    signals::signal_api_server,
    wait::{eventually, until},
    world::World,
};
use chandler_sandbox::plane::Plane;
use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

const CLUSTERS: [&str; 4] = ["alpha", "bravo", "charlie", "delta"];
const PLACEMENTS: usize = 10;
const SLOTS: usize = 4;

fn placements() -> impl Iterator<Item = String> {
    (0..PLACEMENTS).map(|number| format!("hello-{number}"))
}

/// Installs forty releases on four clusters.
async fn install(world: &World) -> (Vec<Arc<Plane>>, Manager) {
    let planes = join_all(CLUSTERS.map(|name| world.create_cluster(name))).await;
    let manager = world.start_manager_with(&["--concurrency", &SLOTS.to_string()]);
    for placement in placements() {
        world.apply_placement(&placement, "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    }
    wait_all_ready(world, 1).await;
    (planes, manager)
}

async fn patch_all(world: &World, spec: &Value) {
    join_all(placements().map(|placement| async move {
        world.patch_placement(&placement, spec.clone()).await;
    }))
    .await;
}

async fn wait_all_ready(world: &World, revision: u32) {
    for placement in placements() {
        for cluster in CLUSTERS {
            world.wait_ready(&placement, cluster, revision).await;
        }
    }
}

/// Returns the number of revisions of each release.
fn revisions(world: &World, planes: &[Arc<Plane>]) -> Vec<usize> {
    let all = planes.iter().flat_map(|plane| placements().map(move |release| (plane, release)));
    all.map(|(plane, release)| {
        let history = world.history(plane, &release);
        let (_, status) = history.last().unwrap();
        assert!(!status.starts_with("pending"), "{release} on {} is {status}", plane.name());
        history.len()
    })
    .collect()
}

/// Sends a signal to the API servers. While they are stopped, operations begin and do not end.
async fn signal_api_servers(planes: &[Arc<Plane>], signal: Signal) {
    for plane in planes {
        signal_api_server(plane, signal).await;
    }
}

#[tokio::test]
async fn a_reverted_change_reaches_only_the_releases_whose_operation_had_begun() {
    let world = World::exclusive("reverted").await;
    let (planes, manager) = install(&world).await;
    manager.wait_idle().await;
    let starts = || manager.operations().iter().filter(|operation| operation.is_start()).count();
    let before = starts();
    signal_api_servers(&planes, Signal::STOP).await;
    let bad = json!({"version": "1.0.0", "valuesTemplate": "greeting: Bad"});
    patch_all(&world, &bad).await;
    until("all slots are taken", async || starts() == before + SLOTS).await;
    patch_all(&world, &json!({"valuesTemplate": "greeting: Hello"})).await;
    eventually("the change is reverted everywhere", || async {
        for placement in placements() {
            for release in world.releases_of(&placement).await {
                if !release.spec.values.contains("Hello") {
                    return None;
                }
            }
        }
        Some(())
    })
    .await;
    until("nothing is queued", async || manager.metrics().await["chandler_operations_queued"] < 0.5).await;
    signal_api_servers(&planes, Signal::CONT).await;
    for placement in placements() {
        for cluster in CLUSTERS {
            world.wait_ready_at_any_revision(&placement, cluster).await;
        }
    }
    manager.wait_idle().await;
    let mut counts = revisions(&world, &planes);
    counts.sort_unstable();
    assert_eq!(
        counts[..counts.len() - SLOTS],
        vec![1; counts.len() - SLOTS],
        "these never saw the bad value"
    );
    assert_eq!(counts[counts.len() - SLOTS..], [3; SLOTS], "these had begun, and were upgraded back");
}

/// Starts a rollout, pauses it when operations have begun and others are queued, and resumes it later.
async fn pause_rollout<F: Future<Output = ()>>(
    world: &World,
    planes: &[Arc<Plane>],
    manager: &Manager,
    revision: u32,
    set_paused: impl Fn(bool) -> F,
) {
    manager.wait_idle().await;
    let starts = || manager.operations().iter().filter(|operation| operation.is_start()).count();
    let before = starts();
    signal_api_servers(planes, Signal::STOP).await;
    patch_all(world, &json!({"valuesTemplate": format!("greeting: Hello {revision}")})).await;
    until("all slots are taken", async || starts() == before + SLOTS).await;
    set_paused(true).await;
    until("nothing is queued", async || manager.metrics().await["chandler_operations_queued"] < 0.5).await;
    signal_api_servers(planes, Signal::CONT).await;
    manager.wait_idle().await;
    let counts = revisions(world, planes);
    let upgraded = counts.iter().filter(|count| **count == usize::try_from(revision).unwrap()).count();
    assert_eq!(upgraded, SLOTS, "only operations that had begun were finished");
    set_paused(false).await;
    wait_all_ready(world, revision).await;
}

#[tokio::test]
async fn pausing_placements_or_clusters_withdraws_queued_operations() {
    let world = World::exclusive("paused-rollout").await;
    let (planes, manager) = install(&world).await;
    let pause_placements = async |paused: bool| {
        let annotation = paused.then_some("");
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": annotation}}});
        for placement in placements() {
            world
                .placements()
                .patch(&placement, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .unwrap();
        }
    };
    pause_rollout(&world, &planes, &manager, 2, pause_placements).await;
    let pause_clusters = async |paused: bool| {
        let patch = json!({"spec": {"paused": paused}}).to_string();
        for cluster in CLUSTERS {
            let resource = format!("clusters.cluster.x-k8s.io/{cluster}");
            let arguments = ["patch", &resource, "--type", "merge", "--patch", &patch];
            world.kubectl(&[&arguments[..], &["--namespace", &world.namespace]].concat());
        }
    };
    pause_rollout(&world, &planes, &manager, 3, pause_clusters).await;
    manager.stop().await;
}

#[tokio::test]
async fn a_manager_that_is_stopped_finishes_its_operations_and_leaves_the_rest_to_its_successor() {
    let world = World::exclusive("drained").await;
    let (planes, manager) = install(&world).await;
    manager.wait_idle().await;
    let starts =
        |manager: &Manager| manager.operations().iter().filter(|operation| operation.is_start()).count();
    let before = starts(&manager);
    patch_all(&world, &json!({"valuesTemplate": "greeting: Hi"})).await;
    until("the rollout has begun", async || starts(&manager) > before).await;
    manager.stop_within(Duration::from_mins(1)).await;
    let counts = revisions(&world, &planes);
    let upgraded = counts.iter().filter(|count| **count == 2).count();
    assert!(upgraded >= 1 && counts.iter().all(|count| *count <= 2), "{counts:?}");

    let successor = world.start_manager();
    wait_all_ready(&world, 2).await;
    successor.wait_idle().await;
    assert_eq!(revisions(&world, &planes), vec![2; PLACEMENTS * CLUSTERS.len()]);
    successor.stop().await;
}

#[tokio::test]
async fn a_manager_that_is_stopped_cancels_what_does_not_end_and_leaves_nothing_pending() {
    let world = World::new("canceled").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager_with(&["--drain-seconds", "1"]);
    world.apply_placement("slow", "slow", json!({"valuesTemplate": "hold: false"})).await;
    world.wait_ready("slow", "alpha", 1).await;
    world.patch_placement("slow", json!({"valuesTemplate": "hold: true"})).await;
    crate::crash::wait_helm_status(&world, &alpha, "pending-upgrade").await;
    manager.stop_within(Duration::from_mins(1)).await;
    let history = world.history(&alpha, "slow");
    assert_eq!(history, [(1, "deployed".to_owned()), (2, "failed".to_owned())]);

    world.patch_placement("slow", json!({"valuesTemplate": "hold: false\nagain: true"})).await;
    let successor = world.start_manager();
    world.wait_ready("slow", "alpha", 3).await;
    assert_eq!(successor.started(OperationKind::RECOVER), 0, "nothing had to be recovered");
    successor.stop().await;
}
