//! Health: whether the objects of a release exist and work decides whether it is ready.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use chandler_api::status::ReleaseStatus;
use chandler_e2e::{
    extension_world::ExtensionWorld,
    manager::Manager,
    wait::{LIMIT, eventually, until},
    world::{World, chart, condition},
};
use chandler_sandbox::{chart as chart_files, fault_proxy::Mode, plane::Plane, requests::AuditEntry};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job};
use kube::{
    Api, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};

/// A failure is not reported before this.
const UNHEALTHY_GRACE_PERIOD: Duration = Duration::from_secs(30);
/// And it is reported by then. The rest is for a busy machine.
const REPORTED: Duration = Duration::from_mins(1);
/// How long a shorter failure lasts.
const BRIEF: Duration = Duration::from_secs(8);
/// How long the way to the cluster is interrupted.
const OUTAGE: Duration = Duration::from_secs(3);
/// The releases that are healthy, or whose failure is too short.
const UNCHANGED: [&str; 4] = ["steady", "brief", "chores", "unwatched"];

async fn deployments(plane: &Plane) -> Api<Deployment> {
    Api::namespaced(plane.client().await.unwrap(), "default")
}

/// Deletes the Deployment of a release. Returns what it was.
async fn delete(plane: &Plane, name: &str) -> Deployment {
    let api = deployments(plane).await;
    let existing = api.get(name).await.unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
    until("the Deployment is deleted", async || api.get_opt(name).await.unwrap().is_none()).await;
    existing
}

/// Creates a deleted Deployment again, as a user with a backup does.
async fn recreate(plane: &Plane, mut deployment: Deployment) {
    deployment.metadata.resource_version = None;
    deployment.metadata.uid = None;
    deployment.metadata.managed_fields = None;
    deployment.status = None;
    deployments(plane).await.create(&PostParams::default(), &deployment).await.unwrap();
}

/// Makes a Deployment unavailable, or available again: its only Pod is replaced by one that no Node accepts.
pub async fn set_schedulable(plane: &Plane, name: &str, schedulable: bool) {
    let node = (!schedulable).then_some("has-this");
    let patch = json!({"spec": {
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        "template": {"spec": {"nodeSelector": {"no-node": node}}},
    }});
    let patch = Patch::Strategic(patch);
    deployments(plane).await.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Returns the resource version of the release object of each HelmChartProxy.
async fn versions(world: &World) -> BTreeMap<String, Option<String>> {
    let releases = world.releases().list(&ListParams::default()).await.unwrap().items;
    let version = |release: &chandler_api::addons::HelmReleaseProxy| {
        (release.spec.release_name.clone(), release.resource_version())
    };
    releases.iter().map(version).collect()
}

fn is_unhealthy(status: &ReleaseStatus) -> bool {
    condition(status, "Ready").is_some_and(|ready| (&*ready.status, &*ready.reason) == ("False", "Unhealthy"))
}

/// Checks the condition `Healthy` of a release: it names the Deployment.
fn assert_names_deployment(status: &ReleaseStatus, name: &str) {
    let healthy = condition(status, "Healthy").unwrap();
    assert_eq!((&*healthy.status, &*healthy.reason), ("False", "Unhealthy"), "{healthy:?}");
    assert!(healthy.message.contains(&format!("Deployment default/{name}")), "{healthy:?}");
    let ready = condition(status, "Ready").unwrap();
    assert!(ready.message.contains(&format!("Deployment default/{name}")), "{ready:?}");
}

/// Installs a release for each of the failures, all of them on alpha except `unwatched`.
async fn install(test: &ExtensionWorld, manager: &Manager) {
    let world = &test.world;
    world.repository.publish(&chart("chores")).unwrap();
    world.apply_policy("no-health", json!({"health": {"enabled": false}})).await;
    for name in ["gone", "steady", "brief"] {
        world.apply_placement(name, "hello", json!({})).await;
    }
    world.apply_placement("chores", "chores", json!({})).await;
    let elsewhere = json!({"clusterSelector": {"matchLabels": {"fleet": "unwatched"}}});
    world.apply_placement_with_policy("unwatched", "hello", "no-health", elsewhere).await;
    test.apply_extension("stuck", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    test.apply_instance("stuck", "stuck", json!({})).await;
    for name in ["gone", "steady", "brief", "chores"] {
        world.wait_ready(name, "alpha", 1).await;
        world.wait_condition(name, "alpha", "Healthy", ("True", "Healthy")).await;
    }
    world.wait_ready("unwatched", "bravo", 1).await;
    test.wait_ready("stuck", "alpha", "1.0.0").await;
    test.wait_cluster_condition("alpha", "AddonsReady", "True").await;
    manager.wait_idle().await;
}

/// Waits until a Job has finished and Kubernetes has removed it.
async fn wait_job_removed(plane: &Plane, name: &str) {
    let jobs: Api<Job> = Api::namespaced(plane.client().await.unwrap(), "default");
    until("the Job is removed", async || jobs.get_opt(name).await.unwrap().is_none()).await;
}

/// Waits until both failures are reported, and checks that no status is written before, and none of other releases. The
/// manager can notice the failures from `reachable` on.
async fn wait_reported(
    test: &ExtensionWorld,
    began: Instant,
    reachable: Instant,
    before: &BTreeMap<String, Option<String>>,
) {
    let world = &test.world;
    let mut reported = None;
    while reported.is_none_or(|at: Instant| at.elapsed() < BRIEF) {
        let gone = world.release("gone", "alpha").await.unwrap();
        let stuck = test.release("stuck", "alpha").await.unwrap();
        let now = versions(world).await;
        let at = began.elapsed();
        assert!(at < LIMIT, "not reported: {gone:?} {stuck:?}");
        for name in UNCHANGED {
            assert_eq!(now[name], before[name], "the status of {name} was written after {at:?}");
        }
        let unhealthy = [gone.status, stuck.status].map(|status| status.as_ref().is_some_and(is_unhealthy));
        if at < UNHEALTHY_GRACE_PERIOD {
            assert_eq!(now["gone"], before["gone"], "its status was written after {at:?}");
            assert_eq!(unhealthy, [false, false], "reported after {at:?}");
        }
        if reported.is_none() && unhealthy == [true, true] {
            assert!(reachable.elapsed() < REPORTED, "reported after {:?}", reachable.elapsed());
            reported = Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test]
async fn an_object_that_is_missing_or_unavailable_for_30_seconds_makes_its_add_on_not_ready() {
    let test = ExtensionWorld::new("health").await;
    let world = &test.world;
    let unwatched = [("fleet", "unwatched")];
    let (alpha, bravo) = tokio::join!(
        world.create_cluster("alpha"),
        world.sandbox.cluster(&world.namespace, "bravo", 1, &unwatched)
    );
    let bravo = bravo.unwrap();
    let proxy = world.interpose(&alpha).await;
    let mut audit = bravo.audit_log();
    let manager = world.start_manager();
    install(&test, &manager).await;
    wait_job_removed(&alpha, "chores").await;
    manager.wait_idle().await;

    // A broken watch changes nothing. What has happened meanwhile is noticed when the objects are listed again.
    let before = versions(world).await;
    let began = Instant::now();
    proxy.set_mode(Mode::Reset);
    let (gone, brief) = (delete(&alpha, "gone").await, delete(&alpha, "brief").await);
    delete(&bravo, "unwatched").await;
    set_schedulable(&alpha, "stuck", false).await;
    tokio::time::sleep(OUTAGE).await;
    proxy.set_mode(Mode::Forward);
    let reachable = Instant::now();
    tokio::time::sleep(BRIEF).await;
    recreate(&alpha, brief).await;
    wait_reported(&test, began, reachable, &before).await;

    assert_names_deployment(&world.release("gone", "alpha").await.unwrap().status.unwrap(), "gone");
    assert_names_deployment(&test.release("stuck", "alpha").await.unwrap().status.unwrap(), "stuck");
    let problems = test.wait_cluster_condition("alpha", "AddonsReady", "False").await;
    assert!(problems.contains("gone: ") && problems.contains("stuck: "), "{problems}");
    assert!(!problems.contains("brief"), "{problems}");

    // What works again is ready at once.
    let repaired = Instant::now();
    recreate(&alpha, gone).await;
    set_schedulable(&alpha, "stuck", true).await;
    world.wait_ready("gone", "alpha", 1).await;
    test.wait_ready("stuck", "alpha", "1.0.0").await;
    assert!(repaired.elapsed() < UNHEALTHY_GRACE_PERIOD, "after {:?}", repaired.elapsed());
    test.wait_cluster_condition("alpha", "AddonsReady", "True").await;
    world.wait_condition("gone", "alpha", "Healthy", ("True", "Healthy")).await;

    // Without health, the cluster is asked for nothing but the records of Helm.
    let unwatched = world.wait_ready("unwatched", "bravo", 1).await;
    assert!(condition(&unwatched, "Healthy").is_none(), "{unwatched:?}");
    let is_watch = |entry: &AuditEntry| entry.is_from_chandler() && ["list", "watch"].contains(&&*entry.verb);
    let watched = audit.read().unwrap().into_iter().filter(is_watch).map(|entry| entry.resource);
    let watched: Vec<_> = watched.filter(|resource| resource != "secrets").collect();
    assert_eq!(watched, [] as [String; 0]);
    manager.stop().await;
}

#[tokio::test]
async fn an_upgrade_repairs_an_unhealthy_release() {
    let world = World::new("health-upgrade").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_condition("hello", "alpha", "Healthy", ("True", "Healthy")).await;
    delete(&alpha, "hello").await;
    // A manager that starts while the object is missing reports it, too.
    manager.stop().await;
    let manager = world.start_manager();
    world.wait_reason("hello", "alpha", "Unhealthy").await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Again"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    eventually("the Deployment is available", || async {
        deployments(&alpha).await.get_opt("hello").await.unwrap()?.status?.available_replicas
    })
    .await;
    world.wait_condition("hello", "alpha", "Healthy", ("True", "Healthy")).await;
    manager.stop().await;
}

/// Publishes a chart with a custom resource and its definition.
fn publish_widgets(world: &World) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.health.example"},
        "spec": {
            "group": "health.example", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let widget = "apiVersion: health.example/v1\nkind: Widget\nmetadata:\n  name: {{ .Release.Name }}\nspec: {size: 1}\n";
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: widgets\nversion: 1.0.0\n"),
        ("crds/widgets.yaml", &definition.to_string()),
        ("templates/widget.yaml", widget),
    ];
    let folder = chart_files::write(&world.dir.join("sources/widgets"), &files).unwrap();
    world.repository.publish(&folder).unwrap();
}

/// Sets the status of the Widget, as its controller does.
async fn set_widget_status(plane: &Plane, status: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("health.example", "v1", "Widget"));
    let widgets: Api<DynamicObject> =
        Api::namespaced_with(plane.client().await.unwrap(), "default", &resource);
    let patch = Patch::Merge(json!({"status": status}));
    widgets.patch_status("widgets", &PatchParams::default(), &patch).await.unwrap();
}

fn widget_checks(failed: &str, current: &str) -> Value {
    let check =
        json!({"apiVersion": "health.example/v1", "kind": "Widget", "failed": failed, "current": current});
    json!({"health": {"checks": [check]}})
}

#[tokio::test]
async fn a_check_of_the_policy_decides_about_a_custom_resource() {
    let world = World::new("health-checks").await;
    let alpha = world.create_cluster("alpha").await;
    publish_widgets(&world);
    let manager = world.start_manager();
    world
        .apply_policy("checked", widget_checks("status.phase == 'Broken'", "status.phase == 'Running'"))
        .await;
    world.apply_placement_with_policy("widgets", "widgets", "checked", json!({})).await;
    let installed = world.wait_ready("widgets", "alpha", 1).await;
    assert!(condition(&installed, "Healthy").is_none(), "the Widget has no status yet: {installed:?}");
    set_widget_status(&alpha, json!({"phase": "Running"})).await;
    world.wait_condition("widgets", "alpha", "Healthy", ("True", "Healthy")).await;

    // By the rules of Chandler, this object works.
    let broken = json!({"phase": "Broken", "conditions": [{"type": "Ready", "status": "True"}]});
    set_widget_status(&alpha, broken).await;
    let message = world.wait_reason("widgets", "alpha", "Unhealthy").await;
    assert!(message.contains("Widget default/widgets: its health check `failed` is true"), "{message}");

    // Another check counts at once, although the object does not change.
    let changed = Instant::now();
    let lenient = widget_checks("status.phase == 'Lost'", "status.phase in ['Running', 'Broken']");
    world.apply_policy("checked", lenient).await;
    world.wait_condition("widgets", "alpha", "Healthy", ("True", "Healthy")).await;
    assert!(changed.elapsed() < UNHEALTHY_GRACE_PERIOD, "after {:?}", changed.elapsed());

    // An invalid one is reported and ignored.
    world.apply_policy("checked", widget_checks("status.phase ==", "false")).await;
    let message =
        world.wait_condition("widgets", "alpha", "PolicyAccepted", ("False", "PolicyInvalid")).await;
    assert!(message.contains("health.checks[0].failed: line 1, column 16"), "{message}");
    world.wait_ready("widgets", "alpha", 1).await;
    world.wait_condition("widgets", "alpha", "Healthy", ("True", "Healthy")).await;
    world.apply_policy("checked", widget_checks("false", "has(status.phase)")).await;
    world.wait_condition("widgets", "alpha", "PolicyAccepted", ("True", "Accepted")).await;
    world.wait_ready("widgets", "alpha", 1).await;
    manager.stop().await;
}
