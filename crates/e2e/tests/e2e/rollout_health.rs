//! Rollouts of changes that Helm deploys, but that do not work: they reach no other cluster.

use std::sync::Arc;

use chandler_api::{
    extensions::AddonRelease,
    status::{PlacementStatus, ReleaseStatus, RevisionState, RolloutState, RolloutStatus},
};
use chandler_e2e::{
    chandler_command::run_ok,
    extension_world::ExtensionWorld,
    wait::eventually_within,
    world::{World, chart, condition},
};
use chandler_sandbox::{
    fault_proxy::{FaultProxy, Mode},
    plane::Plane,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::rollout::{LIMIT, register, register_at};

/// The clusters, in the order of a rollout of one at a time.
pub const FIRST: &str = "a";
pub const SECOND: &str = "b";

/// The default.
const MIN_READY: SignedDuration = SignedDuration::from_secs(30);

/// A policy with a rollout of one cluster at a time, which the first failure stops; `fields` adds to the rollout.
pub async fn apply_careful(world: &World, name: &str, fields: Value) {
    let mut rollout = json!({"maxConcurrent": 1, "stopAfterFailures": 1});
    rollout.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world.apply_policy(name, json!({"rollout": rollout})).await;
}

/// A wave of the first cluster, in which it has to be ready for an hour.
fn soaking() -> Value {
    json!([{"name": "canary", "selector": {"matchLabels": {"tier": "canary"}}, "soak": "1h"}])
}

/// Applies a HelmChartProxy of the fragile chart for both clusters, under the policy of the same name.
pub async fn apply_fragile(world: &World, name: &str) {
    let fields = json!({
        "clusterSelector": {"matchLabels": {"rollout": "yes"}}, "releaseName": "", "valuesTemplate": "change: one",
    });
    world.apply_placement_with_policy(name, "fragile", name, fields).await;
}

pub async fn change(world: &World, name: &str, values: &str) {
    world.patch_placement(name, json!({"valuesTemplate": values})).await;
}

fn rollout_of(generation: Option<i64>, status: Option<PlacementStatus>) -> Option<RolloutStatus> {
    status.filter(|status| status.observed_generation == generation)?.rollout
}

pub async fn rollout(world: &World, name: &str) -> Option<RolloutStatus> {
    let placement = world.placements().get(name).await.unwrap();
    rollout_of(placement.metadata.generation, placement.status)
}

pub async fn wait_state(world: &World, name: &str, state: RolloutState) -> RolloutStatus {
    eventually_within(LIMIT, &format!("the rollout of {name} is {state}"), || async {
        rollout(world, name).await.filter(|rollout| rollout.state == state)
    })
    .await
}

/// Waits until a release has a second revision whose status satisfies a predicate.
pub async fn wait_updated(world: &World, name: &str, is: impl Fn(&ReleaseStatus) -> bool) -> ReleaseStatus {
    let what = "updated as expected";
    world.wait_status(name, FIRST, what, |status| status.revision == Some(2) && is(status)).await
}

fn is_ready(status: &ReleaseStatus) -> bool {
    condition(status, "Ready").is_some_and(|ready| ready.status == "True")
}

pub fn is_unhealthy(status: &ReleaseStatus) -> bool {
    condition(status, "Ready").is_some_and(|ready| ready.reason == "Unhealthy")
}

/// Checks that a change is on the first cluster only, and that the rollout has stopped because it has failed there.
pub async fn assert_stopped_at_first(world: &World, name: &str) {
    let stopped = wait_state(world, name, RolloutState::Stopped).await;
    assert_eq!((stopped.failed, stopped.updated, stopped.waiting), (1, 0, 1), "{name}: {stopped:?}");
    let second = world.release(name, SECOND).await.unwrap();
    assert!(second.spec.values.contains("change: one"), "{name}: {}", second.spec.values);
    assert_eq!(second.status.unwrap().revision, Some(1), "{name}");
}

/// Lets the Pods of a release crash, as a kubelet reports it.
async fn crash(plane: &Plane, release: &str) {
    let pods: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), "default");
    let of_release = ListParams::default().labels(&format!("app={release}"));
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
            {"type": "ContainersReady", "status": "False", "reason": "ContainersNotReady"},
        ],
        "containerStatuses": [{
            "name": "main", "ready": false, "restartCount": 3, "image": "pause:3.10", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }],
    }});
    let mut crashed = 0;
    for pod in pods.list(&of_release).await.unwrap() {
        if pod.metadata.deletion_timestamp.is_none() {
            let patch = Patch::Strategic(&status);
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
            crashed += 1;
        }
    }
    assert_eq!(crashed, 1, "{release} has one Pod");
}

/// Two Clusters on API servers of their own, with the fragile chart.
pub async fn two_clusters(world: &World) -> [Arc<Plane>; 2] {
    world.repository.publish(&chart("fragile")).unwrap();
    let (first, second) = tokio::join!(world.create_cluster("p0"), world.create_cluster("p1"));
    register(world, FIRST, &first, "canary").await;
    register(world, SECOND, &second, "").await;
    [first, second]
}

pub async fn wait_installed(world: &World, names: &[&str]) {
    for name in names {
        for cluster in [FIRST, SECOND] {
            world.wait_ready(name, cluster, 1).await;
            world.wait_condition(name, cluster, "Healthy", ("True", "Healthy")).await;
        }
        wait_state(world, name, RolloutState::Done).await;
    }
}

/// Applies an ExtensionInstance of the fragile chart that does not wait, under the policy `careful`, for the Clusters of the
/// API servers: the versions of an Extension depend on that of Kubernetes.
async fn apply_instance(test: &ExtensionWorld, parameters: Value) {
    let fields = json!({
        "parameters": parameters, "options": {"wait": false}, "policyRef": {"name": "careful"},
    });
    test.apply_instance("extension", "extension", fields).await;
}

async fn instance_rollout(test: &ExtensionWorld, state: RolloutState) -> RolloutStatus {
    eventually_within(LIMIT, &format!("the rollout of the instance is {state}"), || async {
        let instance = test.instances().get("extension").await.unwrap();
        let status = instance.status.map(|status| status.placement);
        rollout_of(instance.metadata.generation, status).filter(|rollout| rollout.state == state)
    })
    .await
}

async fn instance_revisions(test: &ExtensionWorld) -> [Option<u32>; 2] {
    let revision = |release: Option<AddonRelease>| release?.status?.revision;
    let (first, second) = tokio::join!(test.release("extension", "p0"), test.release("extension", "p1"));
    [revision(first), revision(second)]
}

#[tokio::test]
async fn a_change_that_never_works_stays_on_one_cluster() {
    let test = ExtensionWorld::new("rollout-broken").await;
    let world = &test.world;
    let planes = two_clusters(world).await;
    apply_careful(world, "careful", json!({})).await;
    apply_careful(world, "never", json!({"timeout": "45s"})).await;
    apply_careful(world, "slow", json!({"minReady": "1s"})).await;
    let manager = world.start_manager();
    for name in ["never", "slow"] {
        apply_fragile(world, name).await;
    }
    let source = json!({"versions": [
        {"version": "1.0.0", "kubernetes": "*", "source": {"catalog": {"name": "charts"}, "chart": "fragile"}},
    ]});
    test.apply_extension("extension", json!([]), source).await;
    apply_instance(&test, json!({})).await;
    wait_installed(world, &["never", "slow"]).await;
    for cluster in ["p0", "p1"] {
        test.wait_ready("extension", cluster, "1.0.0").await;
    }
    instance_rollout(&test, RolloutState::Done).await;

    let gives_up = json!({"change": "two", "node": "missing", "progressDeadlineSeconds": 5});
    apply_instance(&test, gives_up).await;
    change(world, "never", "change: two\nnode: missing\n").await;
    change(world, "slow", "change: two\nnode: late\n").await;
    // An add-on that takes long to start stops nothing.
    wait_updated(world, "slow", is_unhealthy).await;
    let progressing = wait_state(world, "slow", RolloutState::Progressing).await;
    assert_eq!((progressing.updating, progressing.failed), (1, 0), "{progressing:?}");
    for plane in &planes {
        let nodes: Api<Node> = Api::all(plane.client().await.unwrap());
        let label = Patch::Merge(json!({"metadata": {"labels": {"late": "yes"}}}));
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            nodes.patch(&node.name_any(), &PatchParams::default(), &label).await.unwrap();
        }
    }
    // The Deployment has failed before the rollout's time is over.
    let stopped = instance_rollout(&test, RolloutState::Stopped).await;
    assert_eq!((stopped.failed, stopped.waiting), (1, 1), "{stopped:?}");
    assert_eq!(instance_revisions(&test).await, [Some(2), Some(1)]);
    assert_stopped_at_first(world, "never").await;
    let done = wait_state(world, "slow", RolloutState::Done).await;
    assert_eq!((done.updated, done.failed), (2, 0), "{done:?}");
    assert_eq!(done.message, "2 of 2 clusters are updated");
    manager.stop().await;
}

#[tokio::test]
async fn pods_that_crash_later_stop_a_rollout() {
    let world = World::new("rollout-crash").await;
    let [plane, _] = two_clusters(&world).await;
    apply_careful(&world, "early", json!({"timeout": "1m"})).await;
    apply_careful(&world, "soaking", json!({"minReady": "1s", "waves": soaking()})).await;
    let manager = world.start_manager();
    for name in ["early", "soaking"] {
        apply_fragile(&world, name).await;
    }
    wait_installed(&world, &["early", "soaking"]).await;
    for name in ["early", "soaking"] {
        change(&world, name, "change: two").await;
    }
    let release = async |name: &str| world.release(name, FIRST).await.unwrap().spec.release_name;
    // The Pods are ready at first, but not for as long as they have to be.
    wait_updated(&world, "early", |status| {
        is_ready(status)
            && condition(status, "Healthy").is_some_and(|healthy| healthy.status == "True")
            && status.health.as_ref().is_some_and(|health| health.state == RevisionState::Progressing)
    })
    .await;
    crash(&plane, &release("early").await).await;
    wait_state(&world, "soaking", RolloutState::Soaking).await;
    crash(&plane, &release("soaking").await).await;
    assert_stopped_at_first(&world, "early").await;
    assert_stopped_at_first(&world, "soaking").await;
    manager.stop().await;
}

#[tokio::test]
async fn an_api_server_that_dies_after_an_update_stops_a_rollout() {
    let world = World::new("rollout-outage").await;
    world.repository.publish(&chart("fragile")).unwrap();
    let (first, second) = tokio::join!(world.create_cluster("p0"), world.create_cluster("p1"));
    let proxy = FaultProxy::start(first.port()).await.unwrap();
    register_at(&world, FIRST, &first, proxy.port(), "canary").await;
    register(&world, SECOND, &second, "").await;
    apply_careful(&world, "dies", json!({"timeout": "45s"})).await;
    apply_careful(&world, "flaps", json!({"minReady": "1s", "timeout": "1m", "waves": soaking()})).await;
    let manager = world.start_manager();
    for name in ["dies", "flaps"] {
        apply_fragile(&world, name).await;
    }
    wait_installed(&world, &["dies", "flaps"]).await;
    change(&world, "flaps", "change: two").await;
    wait_state(&world, "flaps", RolloutState::Soaking).await;
    change(&world, "dies", "change: two").await;
    wait_updated(&world, "dies", is_ready).await;
    proxy.set_mode(Mode::Reset);
    assert_stopped_at_first(&world, "dies").await;
    let lost = wait_state(&world, "flaps", RolloutState::Progressing).await;
    assert_eq!((lost.updating, lost.failed, lost.waiting), (1, 0, 1), "{lost:?}");

    let contact = Timestamp::now();
    proxy.set_mode(Mode::Forward);
    wait_state(&world, "flaps", RolloutState::Soaking).await;
    // It works after all, but the outage is no time in which that was seen.
    assert_eq!(wait_state(&world, "dies", RolloutState::Done).await.updated, 2);
    let confirmed = world.release("dies", FIRST).await.unwrap().status.unwrap().health.unwrap().since.0;
    assert!(confirmed.duration_since(contact) >= MIN_READY, "{contact} {confirmed}");
    // A link that is lost again and again does not hold the rollout for ever.
    proxy.set_mode(Mode::Reset);
    assert_stopped_at_first(&world, "flaps").await;
    let text = run_ok(&world, &["rollout", "status", "hcp/flaps"]).await;
    assert!(text.contains("Stopped"), "{text}");
    manager.stop().await;
}
