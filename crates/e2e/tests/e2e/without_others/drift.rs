//! How soon drift is corrected.

use std::time::{Duration, Instant};

use chandler_core::release::OperationKind;
use chandler_e2e::{
    manager::Manager,
    wait::{eventually, until},
    world::{World, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::{autoscaling::v2::HorizontalPodAutoscaler, core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::drift::{IMAGE, IMAGE_FIELD, image, image_and_replicas, set_image, wait_corrected, wait_in_sync};

/// A change is corrected by then.
const CORRECTED: Duration = Duration::from_secs(5);
async fn replicas(plane: &Plane, name: &str) -> Option<i32> {
    image_and_replicas(plane, name).await.1
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
