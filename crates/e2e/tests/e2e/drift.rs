//! Drift: objects of a release that others have changed are reported or corrected.

use std::time::{Duration, Instant};

use chandler_core::release::OperationKind;
use chandler_e2e::{
    manager::Manager,
    wait::{eventually, until},
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, Service, ServiceAccount},
    events::v1::Event,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// A change is corrected by then.
const CORRECTED: Duration = Duration::from_secs(5);
/// The image in the chart.
const IMAGE: &str = "pause:3.10";
const IMAGE_FIELD: &str = "/spec/template/spec/containers/0/image";

async fn deployments(plane: &Plane) -> Api<Deployment> {
    Api::namespaced(plane.client().await.unwrap(), "default")
}

async fn patch_deployment(plane: &Plane, name: &str, patch: Value) {
    let patch = Patch::Strategic(patch);
    deployments(plane).await.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Changes the image of a Deployment by hand.
async fn set_image(plane: &Plane, name: &str, image: &str) {
    let containers = json!([{"name": "hello", "image": image}]);
    patch_deployment(plane, name, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
}

/// Returns the image and the number of replicas of a Deployment.
async fn image_and_replicas(plane: &Plane, name: &str) -> (String, Option<i32>) {
    let spec = deployments(plane).await.get(name).await.unwrap().spec.unwrap();
    (spec.template.spec.unwrap().containers.remove(0).image.unwrap(), spec.replicas)
}

async fn image(plane: &Plane, name: &str) -> String {
    image_and_replicas(plane, name).await.0
}

async fn replicas(plane: &Plane, name: &str) -> Option<i32> {
    image_and_replicas(plane, name).await.1
}

/// Waits until the image is that of the chart again.
async fn wait_corrected(plane: &Plane, name: &str) {
    until("the image is corrected", async || image(plane, name).await == IMAGE).await;
}

/// An autoscaler that a user has created for the Deployment of a release.
async fn create_scaler(plane: &Plane, name: &str, min_replicas: i32) -> Api<HorizontalPodAutoscaler> {
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(plane.client().await.unwrap(), "default");
    let scaler = json!({
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": min_replicas, "maxReplicas": 9,
        },
    });
    api.create(&PostParams::default(), &serde_json::from_value(scaler).unwrap()).await.unwrap();
    api
}

async fn raise_min_replicas(scalers: &Api<HorizontalPodAutoscaler>, name: &str, min_replicas: i32) {
    let raised = Patch::Merge(json!({"spec": {"minReplicas": min_replicas}}));
    scalers.patch(name, &PatchParams::default(), &raised).await.unwrap();
}

/// Changes the image of a Deployment with 4 replicas by hand while an autoscaler scales it to 6, and waits for both.
async fn change_while_scaling(plane: &Plane, scalers: &Api<HorizontalPodAutoscaler>, name: &str) {
    let began = Instant::now();
    tokio::join!(set_image(plane, name, "pause:by-hand"), raise_min_replicas(scalers, name, 6));
    let mut corrected_after = None;
    until("the image is corrected and the Deployment is scaled", async || {
        let (image, replicas) = image_and_replicas(plane, name).await;
        assert!(replicas.is_some_and(|replicas| replicas >= 4), "it was scaled down: {replicas:?}");
        let is_corrected = image == IMAGE;
        if is_corrected {
            corrected_after.get_or_insert_with(|| began.elapsed());
        }
        is_corrected && replicas == Some(6)
    })
    .await;
    assert!(corrected_after.unwrap() < CORRECTED, "it was corrected after {corrected_after:?}");
}

async fn wait_in_sync(world: &World, placement: &str) {
    world.wait_condition(placement, "alpha", "Drifted", ("False", "InSync")).await;
}

/// Returns the comparisons with this outcome that have ended.
fn comparisons(manager: &Manager, outcome: &str) -> usize {
    let is_one = |one: &&chandler_e2e::manager::Operation| {
        one.kind == OperationKind::Compare && one.outcome.as_deref() == Some(outcome)
    };
    manager.operations().iter().filter(is_one).count()
}

#[tokio::test]
async fn a_change_by_hand_is_corrected_while_an_autoscaler_is_not_disturbed() {
    let world = World::exclusive("drift").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_policy("correct", json!({"drift": {"mode": "Correct"}})).await;
    world.apply_placement_with_policy("web", "hello", "correct", json!({})).await;
    world.wait_ready("web", "alpha", 1).await;
    wait_in_sync(&world, "web").await;

    // The autoscaler scales through the subresource, which is no drift.
    let scalers = create_scaler(&alpha, "web", 2).await;
    until("the Deployment is scaled", async || replicas(&alpha, "web").await == Some(2)).await;
    raise_min_replicas(&scalers, "web", 4).await;
    until("the Deployment is scaled again", async || replicas(&alpha, "web").await == Some(4)).await;
    manager.wait_idle().await;
    assert_eq!(comparisons(&manager, "corrected"), 0);
    let compared = manager.started(OperationKind::Compare);
    assert!(compared >= 2, "the changed number of replicas was compared: {compared}");

    change_while_scaling(&alpha, &scalers, "web").await;

    // A deleted object is created again.
    let maps: Api<ConfigMap> = Api::namespaced(alpha.client().await.unwrap(), "default");
    let began = Instant::now();
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    until("the ConfigMap exists again", async || maps.get_opt("web").await.unwrap().is_some()).await;
    assert!(began.elapsed() < CORRECTED, "it was created after {:?}", began.elapsed());
    manager.wait_idle().await;
    wait_in_sync(&world, "web").await;
    assert_eq!(replicas(&alpha, "web").await, Some(6), "the corrections keep the replicas");
    assert_eq!(config_value(&alpha, "web", "greeting").await.as_deref(), Some("Hello from somewhere"));

    // Nothing is corrected while operations are suspended.
    world.annotate_placement("web", json!({"chandler.dev/suspend": "true"})).await;
    manager.wait_idle().await;
    set_image(&alpha, "web", "pause:suspended").await;
    manager.wait_idle().await;
    assert_eq!(image(&alpha, "web").await, "pause:suspended");
    let began = Instant::now();
    world.annotate_placement("web", json!({"chandler.dev/suspend": null})).await;
    wait_corrected(&alpha, "web").await;
    assert!(began.elapsed() < CORRECTED, "it was corrected after {:?}", began.elapsed());

    manager.wait_idle().await;
    assert_eq!(world.history(&alpha, "web"), [(1, "deployed".to_owned())], "there is no new revision");
    let status = world.wait_ready("web", "alpha", 1).await;
    assert_eq!(status.drift.unwrap().objects, []);
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    eventually("an Event names what was corrected", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let mut notes = all.into_iter().filter(|event| event.reason.as_deref() == Some("DriftCorrected"));
        notes.find_map(|event| event.note).filter(|note| note.contains(IMAGE_FIELD))
    })
    .await;
    manager.stop().await;
}

/// Changes the objects of the release `noted` in four ways.
async fn change_objects(alpha: &Plane) {
    let client = alpha.client().await.unwrap();
    set_image(alpha, "noted", "pause:by-hand").await;
    let greeting = Patch::Merge(json!({"data": {"greeting": "By hand"}}));
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.patch("noted", &PatchParams::default(), &greeting).await.unwrap();
    let opted_out = Patch::Merge(json!({
        "metadata": {"annotations": {"chandler.dev/drift": "ignore"}}, "spec": {"selector": {"app": "by-hand"}},
    }));
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    services.patch("noted", &PatchParams::default(), &opted_out).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
    accounts.delete("noted", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn drift_is_reported_except_for_what_is_ignored() {
    let world = World::new("drift-report").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let drift = |mode: &str| {
        let ignore = json!([{"target": {"kind": "ConfigMap", "name": "noted"}, "paths": ["/data/greeting"]}]);
        json!({"drift": {"mode": mode, "ignore": ignore}})
    };
    world.apply_policy("report", drift("Report")).await;
    world.apply_placement_with_policy("noted", "hello", "report", json!({})).await;
    world.apply_placement("plain", "hello", json!({})).await;
    world.wait_ready("noted", "alpha", 1).await;
    wait_in_sync(&world, "noted").await;
    manager.wait_idle().await;

    change_objects(&alpha).await;
    set_image(&alpha, "plain", "pause:by-hand").await;
    let missing = "ServiceAccount default/noted is missing";
    let status = world
        .wait_status("noted", "alpha", "drifted", |status| {
            let message = condition(status, "Drifted").map(|drifted| drifted.message.clone());
            message.is_some_and(|message| message.contains(missing) && message.contains(IMAGE_FIELD))
        })
        .await;
    let drifted = condition(&status, "Drifted").unwrap();
    assert_eq!((&*drifted.status, &*drifted.reason), ("True", "Drifted"));
    for ignored in ["ConfigMap", "Service default"] {
        assert!(!drifted.message.contains(ignored), "{}", drifted.message);
    }
    assert_eq!(condition(&status, "Ready").unwrap().status, "True", "Ready does not depend on drift");
    manager.wait_idle().await;
    assert_eq!(image(&alpha, "noted").await, "pause:by-hand", "nothing is corrected");
    let plain = world.wait_ready("plain", "alpha", 1).await;
    assert!(condition(&plain, "Drifted").is_none(), "without a policy, nothing is compared");
    let drifted = manager.metrics().await["chandler_drifted_releases{kind=\"HelmReleaseProxy\"}"];
    assert_eq!(drifted.to_string(), "1");
    manager.stop().await;

    // A restart compares nothing again, and keeps what was found.
    let second = world.start_manager();
    second.wait_idle().await;
    assert_eq!(second.started(OperationKind::Compare), 0);
    world.wait_condition("noted", "alpha", "Drifted", ("True", "Drifted")).await;

    // Another policy applies to what has changed before.
    world.apply_policy("report", drift("Correct")).await;
    wait_corrected(&alpha, "noted").await;
    wait_in_sync(&world, "noted").await;
    second.wait_idle().await;
    let client = alpha.client().await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    assert!(accounts.get_opt("noted").await.unwrap().is_some());
    assert_eq!(config_value(&alpha, "noted", "greeting").await.as_deref(), Some("By hand"), "it is ignored");
    let services: Api<Service> = Api::namespaced(client, "default");
    let selector = services.get("noted").await.unwrap().spec.unwrap().selector.unwrap();
    assert_eq!(selector["app"], "by-hand", "it has opted out");
    assert_eq!(image(&alpha, "plain").await, "pause:by-hand");
    assert_eq!(world.history(&alpha, "noted"), [(1, "deployed".to_owned())]);

    world.apply_policy("report", json!({})).await;
    world
        .wait_status("noted", "alpha", "not compared any more", |status| {
            condition(status, "Drifted").is_none() && status.drift.is_none()
        })
        .await;
    second.stop().await;
}
