//! Rollouts: waves, soak times, failures that stop them, what users can do about them, and rollbacks.

use std::{sync::Arc, time::Duration};

use chandler_api::{
    addons::HelmReleaseProxy,
    status::{RolloutState, RolloutStatus},
};
use chandler_e2e::{
    chandler_command::{run_err, run_ok},
    wait::{eventually, eventually_within},
    world::{World, condition, config_value, hello},
};
use chandler_sandbox::plane::Plane;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// The template of [`apply_hello`], as the harness stores it.
const ONE: &str = "greeting: One\n# canary-of-hello\n";
pub const LIMIT: Duration = Duration::from_mins(4);

/// Registers a Cluster whose API server is that of a running plane: several Clusters share it. Its control plane object does not
/// exist, because it could belong to one of them only.
pub async fn register(world: &World, name: &str, plane: &Plane, tier: &str) {
    register_at(world, name, plane, plane.port(), tier).await;
}

/// Like [`register`], with another port at which the manager reaches the API server.
pub async fn register_at(world: &World, name: &str, plane: &Plane, port: u16, tier: &str) {
    let kubeconfig = plane.kubeconfig().replace(&format!(":{}", plane.port()), &format!(":{port}"));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": format!("{name}-kubeconfig"), "namespace": world.namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": name},
        },
        "stringData": {"value": kubeconfig},
    });
    world.apply(&secret).await;
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": name, "namespace": world.namespace, "labels": {"rollout": "yes", "tier": tier}},
        "spec": {
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": plane.port()},
            "controlPlaneRef": {
                "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "SandboxControlPlane", "name": "elsewhere",
            },
        },
    });
    world.apply(&cluster).await;
    let status = json!({"status": {
        "initialization": {"controlPlaneInitialized": true, "infrastructureProvisioned": true},
    }});
    let patch = Patch::Merge(&status);
    world.clusters().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Applies the placement `hello` for the registered Clusters. The names of its releases are generated, because Clusters share API
/// servers.
pub async fn apply_hello(world: &World, fields: Value) {
    let mut spec = json!({
        "clusterSelector": {"matchLabels": {"rollout": "yes"}}, "releaseName": "", "valuesTemplate": "greeting: One",
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world.apply_placement_with_policy("hello", "hello", "careful", spec).await;
}

pub async fn rollout(world: &World) -> Option<RolloutStatus> {
    let placement = world.placements().get("hello").await.unwrap();
    let generation = placement.metadata.generation;
    placement.status.filter(|status| status.observed_generation == generation)?.rollout
}

pub async fn wait_state(world: &World, state: RolloutState) -> RolloutStatus {
    eventually_within(LIMIT, &format!("the rollout is {state}"), || async {
        rollout(world).await.filter(|rollout| rollout.state == state)
    })
    .await
}

pub fn is_ready(release: &HelmReleaseProxy) -> bool {
    let status = release.status.as_ref();
    let status = status.filter(|status| status.observed_generation == release.metadata.generation);
    status.is_some_and(|status| condition(status, "Ready").is_some_and(|ready| ready.status == "True"))
}

/// Four Clusters on one plane, of which `a` is the first wave and has to be ready for `soak`.
async fn small_fleet(world: &World, soak: &str) -> Arc<Plane> {
    let plane = world.create_cluster("plane").await;
    for (name, tier) in [("a", "first"), ("b", ""), ("c", ""), ("d", "")] {
        register(world, name, &plane, tier).await;
    }
    apply_careful(world, soak).await;
    plane
}

async fn apply_careful(world: &World, soak: &str) {
    let wave = json!({"name": "first", "selector": {"matchLabels": {"tier": "first"}}, "soak": soak});
    let rollout = json!({"maxConcurrent": 1, "minReady": "1s", "waves": [wave]});
    world.apply_policy("careful", json!({"rollout": rollout})).await;
}

async fn revisions(world: &World, plane: &Plane) -> Vec<usize> {
    let mut lengths = Vec::new();
    for cluster in ["a", "b", "c", "d"] {
        let release = world.release("hello", cluster).await.unwrap();
        lengths.push(world.history(plane, &release.spec.release_name).len());
    }
    lengths
}

async fn greeting(world: &World, plane: &Plane, cluster: &str) -> String {
    let release = world.release("hello", cluster).await.unwrap();
    config_value(plane, &release.spec.release_name, "greeting").await.unwrap()
}

#[tokio::test]
async fn an_aborted_rollout_rolls_back_what_it_has_updated() {
    let world = World::new("rollout-abort").await;
    let plane = small_fleet(&world, "1h").await;
    let manager = world.start_manager();
    apply_hello(&world, json!({})).await;
    assert_eq!(wait_state(&world, RolloutState::Done).await.total, 4);
    for cluster in ["a", "b", "c", "d"] {
        world.wait_ready("hello", cluster, 1).await;
    }
    let refused = run_err(&world, &["rollout", "abort", "hcp/hello"]).await;
    assert!(refused.contains("nothing to abort"), "{refused}");

    let values = "greeting: Two {{ .Cluster.metadata.labels.color }}";
    world.patch_placement("hello", json!({"valuesTemplate": values})).await;
    let soaking = wait_state(&world, RolloutState::Soaking).await;
    assert_eq!((soaking.wave.as_deref(), soaking.updated, soaking.waiting), (Some("first"), 1, 3));
    world.wait_ready("hello", "a", 2).await;
    manager.wait_idle().await;
    assert_eq!(revisions(&world, &plane).await, [2, 1, 1, 1]);

    // What changes for one Cluster only does not wait.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"color": "blue"}}}));
    world.clusters().patch("a", &PatchParams::default(), &patch).await.unwrap();
    world.wait_ready("hello", "a", 3).await;
    assert_eq!(greeting(&world, &plane, "a").await, "Two blue from somewhere");
    assert_eq!(wait_state(&world, RolloutState::Soaking).await.updated, 1);

    run_ok(&world, &["rollout", "abort", "hcp/hello"]).await;
    wait_state(&world, RolloutState::Aborted).await;
    world.wait_reason("hello", "a", "RolledBack").await;
    assert_eq!(greeting(&world, &plane, "a").await, "One from somewhere", "before the rollout");
    manager.wait_idle().await;
    assert_eq!(revisions(&world, &plane).await, [4, 1, 1, 1]);

    let manager = {
        manager.stop().await;
        world.start_manager()
    };
    manager.wait_idle().await;
    assert_eq!(revisions(&world, &plane).await, [4, 1, 1, 1], "it stays rolled back");
    world.patch_placement("hello", json!({"valuesTemplate": ONE})).await;
    wait_state(&world, RolloutState::Done).await;
    world.wait_ready("hello", "a", 4).await;
    manager.wait_idle().await;
    assert_eq!(revisions(&world, &plane).await, [4, 1, 1, 1], "nothing had to be changed");
    manager.stop().await;
}

#[tokio::test]
async fn users_pause_and_skip_and_roll_single_releases_back() {
    let world = World::new("rollout-users").await;
    let plane = small_fleet(&world, "0s").await;
    let manager = world.start_manager();
    apply_hello(&world, json!({})).await;
    wait_state(&world, RolloutState::Done).await;
    for cluster in ["a", "b", "c", "d"] {
        world.wait_ready("hello", cluster, 1).await;
    }
    run_ok(&world, &["rollout", "pause", "hcp/hello"]).await;
    run_ok(&world, &["rollout", "skip", "hcp/hello", "--cluster", "c"]).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Two"})).await;
    assert_eq!(wait_state(&world, RolloutState::Paused).await.waiting, 3);
    manager.wait_idle().await;
    assert_eq!(revisions(&world, &plane).await, [1; 4]);
    run_ok(&world, &["rollout", "resume", "hcp/hello"]).await;
    let watched = run_ok(&world, &["rollout", "status", "hcp/hello", "--watch"]).await;
    assert!(watched.contains("Done: 3 of 4 clusters are updated; 1 skipped"), "{watched}");
    assert_eq!(revisions(&world, &plane).await, [2, 2, 1, 2]);
    run_ok(&world, &["rollout", "skip", "hcp/hello", "--none"]).await;
    world.wait_ready("hello", "c", 2).await;

    run_ok(&world, &["rollback", "hcp/hello", "--cluster", "b"]).await;
    world.wait_reason("hello", "b", "RolledBack").await;
    assert_eq!(greeting(&world, &plane, "b").await, "One from somewhere");
    manager.wait_idle().await;
    assert_eq!(revisions(&world, &plane).await, [2, 3, 2, 2]);
    run_ok(&world, &["retry", "hcp/hello", "--cluster", "b"]).await;
    world.wait_ready("hello", "b", 4).await;
    assert_eq!(greeting(&world, &plane, "b").await, "Two from somewhere");
    let refused = run_err(&world, &["rollback", "hcp/hello", "--cluster", "b", "--to-revision", "9"]).await;
    assert!(refused.contains("has no revision 9"), "{refused}");
    manager.stop().await;
}

/// Waits until `a` has one version, and the others have another one.
async fn wait_versions(world: &World, first: &str, others: &str) {
    eventually(&format!("a has {first}, the others have {others}"), || async {
        for (cluster, expected) in [("a", first), ("b", others), ("c", others), ("d", others)] {
            let release = world.release("hello", cluster).await.filter(is_ready)?;
            release.status?.package.filter(|package| package.version == expected)?;
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn newer_versions_wait_until_a_rollout_has_ended() {
    let world = World::new("rollout-versions").await;
    small_fleet(&world, "1h").await;
    let manager = world.start_manager_with(&["--poll-seconds", "2"]);
    apply_hello(&world, json!({"version": ""})).await;
    wait_versions(&world, "1.0.0", "1.0.0").await;
    wait_state(&world, RolloutState::Done).await;
    world.repository.publish_version(&hello(), "1.1.0").unwrap();
    wait_versions(&world, "1.1.0", "1.0.0").await;
    wait_state(&world, RolloutState::Soaking).await;
    world.repository.publish_version(&hello(), "1.2.0").unwrap();
    // Two polls later.
    tokio::time::sleep(Duration::from_secs(5)).await;
    manager.wait_idle().await;
    wait_versions(&world, "1.1.0", "1.0.0").await;
    apply_careful(&world, "0s").await;
    wait_versions(&world, "1.2.0", "1.2.0").await;
    let history = world.release("hello", "b").await.unwrap().status.unwrap().history;
    let versions: Vec<_> = history.iter().rev().filter_map(|one| one.version.as_deref()).collect();
    assert_eq!(versions, ["1.0.0", "1.1.0", "1.2.0"], "the rollout that had begun was completed");
    manager.stop().await;
}
