//! Drift: objects of a release that others have changed are reported or corrected.

use chandler_core::release::OperationKind;
use chandler_e2e::{
    wait::until,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service, ServiceAccount},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The image in the chart.
pub const IMAGE: &str = "pause:3.10";
pub const IMAGE_FIELD: &str = "/spec/template/spec/containers/0/image";

async fn deployments(plane: &Plane) -> Api<Deployment> {
    Api::namespaced(plane.client().await.unwrap(), "default")
}

async fn patch_deployment(plane: &Plane, name: &str, patch: Value) {
    let patch = Patch::Strategic(patch);
    deployments(plane).await.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Changes the image of a Deployment by hand.
pub async fn set_image(plane: &Plane, name: &str, image: &str) {
    let containers = json!([{"name": "hello", "image": image}]);
    patch_deployment(plane, name, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
}

/// Returns the image and the number of replicas of a Deployment.
pub async fn image_and_replicas(plane: &Plane, name: &str) -> (String, Option<i32>) {
    let spec = deployments(plane).await.get(name).await.unwrap().spec.unwrap();
    (spec.template.spec.unwrap().containers.remove(0).image.unwrap(), spec.replicas)
}

pub async fn image(plane: &Plane, name: &str) -> String {
    image_and_replicas(plane, name).await.0
}

/// Waits until the image is that of the chart again.
pub async fn wait_corrected(plane: &Plane, name: &str) {
    until("the image is corrected", async || image(plane, name).await == IMAGE).await;
}

pub async fn wait_in_sync(world: &World, placement: &str) {
    world.wait_condition(placement, "alpha", "Drifted", ("False", "InSync")).await;
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
